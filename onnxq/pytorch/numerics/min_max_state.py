"""Min and max in a state_dict, and as the state of the observer that they stand for.

A state_dict has min_val and max_val, by PyTorch's names. Checkpoints of torch.ao's FakeQuantize
have them in their observer.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from onnxq.observers import MovingAverageMinMaxObserver, NarrowRangeObserver

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from onnxq.observers import Observer

MIN, MAX = "min_val", "max_val"
_TORCHS = "activation_post_process."  # where torch's FakeQuantize keeps its observer


def observer_state(
    observer: Observer, min_max: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[np.generic]]:
    """State that the observer's load_state takes.

    Args:
        observer: one that needs min and max alone.
        min_max: (-min, max), shape (2,) or (2, channels).
    """
    has_seen = bool(min_max.size and np.isfinite(min_max).all())
    low, high = np.asarray(-min_max[0]), np.asarray(min_max[1])
    if isinstance(observer, NarrowRangeObserver):
        return {"absmax": np.maximum(-low, high) if has_seen else np.empty(0, np.float32)}
    if not isinstance(observer, MovingAverageMinMaxObserver):
        return {"min": low, "max": high}
    rows = slice(0, 1 if has_seen else 0)  # one batch, which stands for all
    return {
        "index": np.zeros(1, np.int64)[rows],
        "min": low[None][rows],
        "max": high[None][rows],
    }


def save_min_max(destination: Any, prefix: str, min_max: Tensor) -> None:
    """Writes min and max into a state_dict."""
    destination[prefix + MIN] = min_max[0].neg()
    destination[prefix + MAX] = min_max[1].clone()


def take_min_max(state_dict: dict[str, Any], prefix: str) -> Tensor | None:
    """Min and max in a state_dict, whose entries are removed from it; None: there are none.

    Where the entries are torch's, its flags and the rest of its observer are taken for onnxq's.
    """
    where = prefix
    if prefix + _TORCHS + MIN in state_dict:
        where = prefix + _TORCHS
        state_dict.pop(where + "eps", None)
    low, high = (state_dict.pop(where + name, None) for name in (MIN, MAX))
    if low is None or high is None:
        return None
    min_max = _both(low, high)
    if where != prefix:
        seen = bool(min_max.numel() and torch.isfinite(min_max).all())
        state_dict.setdefault(prefix + "has_observed", torch.tensor([seen], dtype=torch.uint8))
    return min_max


def _both(low: Tensor, high: Tensor) -> Tensor:
    return torch.stack([-low.detach(), high.detach()]).to(torch.float32)


def warn_unseen(name: str) -> None:
    """Warns that qparams were asked for before any data."""
    warnings.warn(
        f"{name} has seen no data: returning scale 1, zero_point 0. Run the model on data first.",
        UserWarning,
        stacklevel=3,
    )
