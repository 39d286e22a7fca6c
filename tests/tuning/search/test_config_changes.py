from __future__ import annotations

from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.tuning.search.candidate import (
    QuantizedAlone,
    changes_of_the_whole,
    precision_in,
)
from onnxq.tuning.search.quantization_groups import Layers
from tests.tuning.made_up import Layer, Network

NETWORK = Network((Layer(1e-4, 0.5, 0.2), Layer(1e-2, 0.5, 0.3)))


def test_a_group_alone_has_all_others_in_float() -> None:
    lowest_precision = QuantizedAlone(default_qconfig_mapping(), NETWORK.groups)
    alone = lowest_precision.alone(Layers(NETWORK.groups[1:]))
    assert [precision_in(alone, group) for group in NETWORK.groups] == [
        Precision.FLOAT,
        Precision.INT8,
    ]
    together = [precision_in(lowest_precision.together, group) for group in NETWORK.groups]
    assert together == [Precision.INT8] * 2


def test_other_observers_of_the_same_type_are_changes_of_the_whole() -> None:
    names = [change.name for change in changes_of_the_whole(default_qconfig_mapping())]
    assert names == ["activations by MinMaxObserver", "activations by PercentileObserver"]
    assert changes_of_the_whole(QConfigMapping(None)) == []
