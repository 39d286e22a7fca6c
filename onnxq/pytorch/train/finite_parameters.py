"""Parameters that training has driven out of float32's numbers, asked for before codes are made.

Codes cannot say NaN: NaN quantized is some code, and the converted module gives numbers
where the trained one gave none. Observers see it while they watch; parameters may diverge after
that, and those of layers that stay in float are watched by none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import ModelError
from onnxq.pytorch.numerics.observing import Observing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


STATISTICS = ("running_mean", "running_var")


def check_parameters(module: nn.Module) -> None:
    """Passes a module whose parameters and statistics are numbers.

    An infinite buffer, or one that is not trained, may be a mask; running statistics may not.

    Raises:
        ModelError: one holds NaN, or is trained and infinite; the message names it.
    """
    found = [f"'{name}' ({_share(~is_number)})" for name, is_number in _wrong(module)]
    if found:
        others = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise ModelError(
            f"{type(module).__name__}: {found[0]}{others} holds NaN or infinite values, of which "
            "codes cannot be made. Training has diverged: go back to a checkpoint from before, and "
            "lower the learning rate or clip gradients."
        )


def _wrong(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and mask of the elements that are numbers, of each tensor where some are not."""
    observers = {id(x) for p in module.modules() if isinstance(p, Observing) for x in p.buffers()}
    for name, x in (*module.named_parameters(), *module.named_buffers()):
        if id(x) in observers or x.is_meta or not x.is_floating_point():
            continue
        may_be_infinite = not x.requires_grad and not name.endswith(STATISTICS)
        is_number = ~x.detach().isnan() if may_be_infinite else x.detach().isfinite()
        if not bool(is_number.all()):
            yield name, is_number


def _share(wrong: Tensor) -> str:
    return f"{int(wrong.sum())} of {wrong.numel()} elements"
