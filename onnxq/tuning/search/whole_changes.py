"""Changes of a whole model that a search tries: what the user's qconfig and improvements allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.dtypes import qint8
from onnxq.observers import MinMaxObserver, PercentileObserver
from onnxq.qconfig import QConfig
from onnxq.tuning.search.config_changes import (
    PER_CHANNEL,
    ActivationObserver,
    AlgorithmChange,
    WeightScales,
    is_per_channel,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.observers import ObserverSpec
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.search.config_changes import ConfigChange

OTHER_OBSERVERS = (MinMaxObserver, PercentileObserver)
"""Observers of activations that are tried in place of the default's least squared error."""


def changes_of_the_whole(asked: QConfigMapping, improve: Sequence[str]) -> list[ConfigChange]:
    """Changes of a whole model: other observers, scales per channel, and improvements of weights.

    Args:
        asked: where the search begins.
        improve: names of improvements that may be used.
    """
    improvements = [AlgorithmChange(name) for name in improve if name not in asked.improve]
    observers = map(ActivationObserver, _other_observers(asked))
    return [*observers, *_finer_scales(asked), *improvements]


def _finer_scales(asked: QConfigMapping) -> list[WeightScales]:
    """Scales per channel, where weights of 8 bits have one each."""
    base = asked.global_qconfig
    if base is None or is_per_channel(base.weight_observer):
        return []
    return [PER_CHANNEL] if base.weight_observer().dtype == qint8 else []


def _other_observers(asked: QConfigMapping) -> list[ObserverSpec]:
    """Observers of activations other than the default's, for codes of the same type."""
    base = asked.global_qconfig
    if not isinstance(base, QConfig):
        return []
    dtype = base.activation_observer().dtype
    specs = [layer_type.with_args(dtype=dtype) for layer_type in OTHER_OBSERVERS]
    return [spec for spec in specs if spec.name != base.activation_observer.name]
