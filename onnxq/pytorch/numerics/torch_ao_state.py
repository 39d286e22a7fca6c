"""A checkpoint of torch.ao's FakeQuantize, as one of onnxq's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from onnxq.observers import Observer

_OBSERVER = "activation_post_process."  # where torch's FakeQuantize keeps its observer
_RANGE = ("min_val", "max_val")
_ENTRIES = (*_RANGE, "eps")


def adopt(
    state_dict: dict[str, Tensor], prefix: str, observer: Observer, seen: str, axis: int | None
) -> None:
    """Replaces the entries of torch's observer by what onnxq's keeps; others are left alone.

    Args:
        state_dict: of a whole model; changed in place.
        prefix: of the FakeQuantize in it.
        observer: fresh; all that it needs is a tensor's range.
        seen: prefix of the buffers that hold the observer's state.
        axis: of the channels; None: one range.
    """
    keys = [prefix + _OBSERVER + name for name in _RANGE]
    if not all(key in state_dict for key in keys) or prefix + "has_observed" in state_dict:
        return
    low, high = (state_dict[key].detach().cpu().to(torch.float32).numpy() for key in keys)
    for name in _ENTRIES:
        state_dict.pop(prefix + _OBSERVER + name, None)
    has_seen = bool(low.size and np.isfinite(low).all())
    state_dict[prefix + "has_observed"] = torch.tensor([has_seen], dtype=torch.uint8)
    if has_seen:
        observer.observe(_ends(low, high, axis), 0)
    for name, array in observer.state().items():
        state_dict[prefix + seen + name] = torch.from_numpy(np.array(array))


def _ends(
    low: npt.NDArray[np.float32], high: npt.NDArray[np.float32], axis: int | None
) -> npt.NDArray[np.float32]:
    """An array of that range: two values, or two for each channel along the axis."""
    both = np.stack([low.reshape(-1), high.reshape(-1)])
    if axis is None:
        return both
    if axis == 0:
        return both.T
    return both.reshape(2, *[1] * (axis - 1), -1)
