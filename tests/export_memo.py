"""Each float module is traced once in a process: equal ones are given copies of what that gave.

Many tests export the same layer, or quantize the module that another one exported. Modules are
equal when all that tracing can read of them is: classes and their plain attributes, every attribute
of every part (modes, hooks, sizes), each tensor with its layout and who shares it; so must be the
inputs, the request and torch's modes. What has no such key (a class inside a function, a module
that fx made, a lambda) is traced. A test that patches code or takes `exports_anew` has no memo.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.onnx._internal.exporter._core import TorchTensor

from onnxq.pytorch.exporting import exporter
from onnxq.pytorch.exporting.trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    Trace = Callable[..., ir.Model]

NO_KEY = (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError)
"""Raised by what cannot be written down."""

LEFT_BY_TRACING = "_specialize_on"
"""Attribute of example inputs."""

PLAIN = (bool, int, float, str, tuple, type(None))


class Memo:
    """Traces by key.

    Attributes:
        paused: everything is traced.
    """

    def __init__(self, trace: Trace) -> None:
        self.paused = False
        self._trace = trace
        self._models: dict[str, ir.Model] = {}

    def __call__(self, module: nn.Module, *request: object) -> ir.Model:
        """The exporter's model, or a copy of what it gave for equal arguments."""
        key = None if self.paused else key_of(module, *request)
        if key is None:
            return self._trace(module, *request)
        if key not in self._models:
            model = self._trace(module, *request)
            if key_of(module, *request) == key:  # tracing left the module as it was
                self._models[key] = copied(model)
            return model
        return copied(self._models[key])


def copied(model: ir.Model) -> ir.Model:
    """The model with weights of its own, in tensors of the exporter's class."""
    new = model.clone()
    for graph in new.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, TorchTensor):
                own = value.const_value.raw.detach().clone()
                value.const_value = TorchTensor(own, name=value.const_value.name)
    return new


def key_of(*arguments: object) -> str | None:
    """A sum over all that tracing can read; None: there is no writing it down."""
    file = io.BytesIO()
    modes = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    )
    try:
        _Writer(file).dump((arguments, modes))
    except NO_KEY:
        return None
    return hashlib.sha256(file.getvalue()).hexdigest()


class _Writer(pickle.Pickler):
    """Writes modules and tensors as what they are made of; nobody reads it back."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True  # equal texts are equal, whether they are one object or two
        self._modules: dict[int, int] = {}
        self._storages: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return _stands_for, self._module(value)
        if isinstance(value, Tensor):
            return _stands_for, self._tensor(value)
        return NotImplemented

    def _module(self, module: nn.Module) -> tuple[object, ...]:
        """Class and attributes of a module; the second time, which one it is."""
        number = self._modules.get(id(module))
        if number is not None:
            return ("the module", number)
        self._modules[id(module)] = len(self._modules)
        return (type(module), _class_attributes(type(module)), dict(vars(module)))

    def _tensor(self, x: Tensor) -> tuple[object, ...]:
        """Type, place and bytes of a tensor."""
        if x.layout is not torch.strided or x.is_quantized:
            raise pickle.PicklingError(f"a tensor of layout {x.layout}")
        number = self._storages.setdefault(x.untyped_storage().data_ptr(), len(self._storages))
        place = (number, x.storage_offset(), tuple(x.shape), x.stride())
        data = x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        attributes = {name: value for name, value in vars(x).items() if name != LEFT_BY_TRACING}
        return (type(x), str(x.dtype), x.requires_grad, place, data, attributes)


def _class_attributes(cls: type) -> list[tuple[str, object]]:
    """Attributes of the class and its bases that are numbers, texts or tuples."""
    return [
        (name, value)
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, PLAIN) and not name.startswith("__")
    ]


def _stands_for(*parts: object) -> tuple[object, ...]:
    return parts


memo = Memo(trace)


def install() -> None:
    """Puts the memo around the one call of torch's exporter."""
    module: Any = exporter  # whose function takes the request under names
    module.trace = memo
