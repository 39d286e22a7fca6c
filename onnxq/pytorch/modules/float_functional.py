"""FloatFunctional: arithmetic as a module, which has a place for the quantizer of its result."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onnxq.errors import CalibrationError, UnsupportedError


class Arithmetic(nn.Module):
    """Operations each of whose results goes through `activation_post_process`."""

    activation_post_process: nn.Module

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002  # a module's signature
        """Raises UnsupportedError, always."""
        raise UnsupportedError(
            f"{type(self).__name__} has no forward; call one of add, add_scalar, mul, mul_scalar, "
            "cat, add_relu and matmul."
        )

    def _processed(self, result: Tensor) -> Tensor:
        processed: Tensor = self.activation_post_process(result)
        return processed

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum x + y."""
        return self._processed(torch.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """The sum x + y, y a number."""
        return self._processed(torch.add(x, y))

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """The product x * y, element by element."""
        return self._processed(torch.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """The product x * y, y a number."""
        return self._processed(torch.mul(x, y))

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after another along dim."""
        return self._processed(torch.cat(list(x), dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """max(x + y, 0), quantized once."""
        return self._processed(torch.relu(torch.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """The matrix product x @ y."""
        return self._processed(torch.matmul(x, y))


class FloatFunctional(Arithmetic):
    """Operations whose result is observed or fake-quantized once the model is prepared.

    Use one instance for each call: its calls share one scale. (torch leaves the results of
    add_scalar and mul_scalar unquantized; here they are quantized, as they are when they run.)

    Attributes:
        activation_post_process: what the result goes through; the identity in a float model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()


class NeverCalled(nn.Module):
    """Where the results of a FloatFunctional go that was not called while the model saw data."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002  # a module's signature
        """Nothing goes through."""
        raise CalibrationError(
            f"'{self.name}' (FloatFunctional) was not called while the prepared model saw data, so "
            "that its result has no scale. Run the prepared model on data that gets there, then "
            "convert it."
        )
