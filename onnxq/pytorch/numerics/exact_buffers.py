"""ExactBuffers, a module whose few numbers keep their dtype, and may change in shape."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from onnxq.pytorch.numerics.torch_operator import Function, torch_operator

# --- Functions and values that torch.compile is to leave alone.


def never_compiled(function: Function, reason: str | None = None) -> Function:
    """torch.compiler.disable, which is untyped."""
    disabled: Function = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]  # torch's
    return disabled


@torch_operator("held", torch.empty_like)
def _held(x: Tensor) -> Tensor:
    """A copy."""
    return x.clone()


def held(x: Tensor) -> Tensor:
    """The values of x, without gradient, that compiled code never computes a second time."""
    return _held(x.detach()) if torch.compiler.is_compiling() else x.detach()


class ExactBuffers(nn.Module):
    """Module whose buffers and parameters keep their dtype when a model is cast to half precision.

    Where channels are not known before data or a checkpoint, a tensor takes a new shape.
    """

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [*self.named_buffers(recurse=False), *self.named_parameters(recurse=False)]

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> Self:
        """Moves the tensors, and leaves their dtypes."""
        before = {name: held.detach() for name, held in self._tensors()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's
        for name, now in self._tensors():
            if now.dtype == before[name].dtype:
                continue
            exact = before[name].to(now.device)
            if isinstance(now, nn.Parameter):
                now.data = exact
            else:
                setattr(self, name, exact)
        return self

    def set_tensor(self, name: str, values: Tensor) -> None:
        """Writes values, in place where the shape allows: compiled code and DDP hold on to it."""
        held = getattr(self, name)
        is_parameter = isinstance(held, nn.Parameter)
        if held.shape == values.shape:
            (held.data if is_parameter else held).copy_(values)
            return
        values = values.to(held.device, held.dtype)
        if is_parameter:
            _reshape(held, values)
        else:
            setattr(self, name, values)

    def fit(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        """Takes over the values in a state_dict that have another number of channels."""
        for name, held in self._tensors():
            value = state_dict.get(prefix + name)
            if value is None or value.shape == held.shape or value.ndim != held.ndim:
                continue
            self.set_tensor(name, value.detach().clone())  # the caller keeps the state


def _reshape_parameter(held: nn.Parameter, values: Tensor) -> None:
    held.data = values  # an optimizer knows this parameter


_reshape = never_compiled(
    _reshape_parameter,
    "the channels of a learned scale are not known before data: run one batch through the model "
    "before it is compiled",
)
