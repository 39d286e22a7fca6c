"""Checkpoints of torch.ao's observers: their entries of a state_dict, written as onnxq's.

    histogram, min_val, max_val, eps   of a HistogramObserver, alone or in a FakeQuantize
    min_val, max_val, eps              of an observer of ranges that is alone

One that is alone has neither a scale nor flags: they are made of what it has seen.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from onnxq.observers import HistogramObserver, ObserverSpec
from onnxq.pytorch.numerics.min_max import MAX, MIN, observer_state, rule_of

STATE = "observer."
"""Entries of onnxq's that hold a NumPy observer's state."""
HISTOGRAM = "histogram"
_INSIDE = "activation_post_process."  # of torch's FakeQuantize


def adopt(
    state_dict: dict[str, Any], prefix: str, spec: ObserverSpec, flags: Mapping[str, bool]
) -> None:
    """Writes the entries of torch's observer as those of onnxq's; other entries stay."""
    is_alone = prefix + "eps" in state_dict and prefix + "scale" not in state_dict
    where = prefix if is_alone else prefix + _INSIDE
    if any(where + name not in state_dict for name in (MIN, MAX)):
        return
    low, high = (state_dict[where + name].detach().cpu().numpy() for name in (MIN, MAX))
    state = histogram_state(state_dict, where, spec)
    if state is None and rule_of(spec()) is None:
        return
    if state is None:
        for name in (MIN, MAX):
            state_dict[prefix + name] = state_dict.pop(where + name)
        made = spec.restore(observer_state(spec(), np.stack([-low, high])))
    else:
        made = spec.restore({key: value.numpy() for key, value in state.items()})
        state_dict.update({f"{prefix}{STATE}{key}": value for key, value in state.items()})
        del state_dict[where + MIN], state_dict[where + MAX]
    state_dict.pop(where + "eps", None)
    is_seen = bool(low.size and np.isfinite(low).all())
    added = {"has_observed": is_seen, **(flags if is_alone else {})}
    for name, value in added.items():
        state_dict.setdefault(prefix + name, torch.tensor([value], dtype=torch.uint8))
    if is_alone:
        found = made.calculate_qparams() if is_seen else made.range.default()
        state_dict[prefix + "scale"] = torch.from_numpy(found.scale.copy())
        state_dict[prefix + "zero_point"] = torch.from_numpy(found.zero_point.astype(np.int32))


def histogram_state(
    state_dict: dict[str, Any], prefix: str, spec: ObserverSpec
) -> dict[str, torch.Tensor] | None:
    """State of an observer that has counted what torch's histogram has."""
    made = spec()
    if prefix + HISTOGRAM not in state_dict or not isinstance(made, HistogramObserver):
        return None
    low, high = (float(state_dict[prefix + name]) for name in (MIN, MAX))
    made.observe_counts(state_dict.pop(prefix + HISTOGRAM).cpu().numpy(), (low, high))
    return {key: torch.from_numpy(np.array(array)) for key, array in made.state().items()}
