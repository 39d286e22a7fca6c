from __future__ import annotations

from onnxq.operator import NodeForm
from onnxq.qconfig import default_qconfig_mapping
from onnxq.tuning.search.coded import QuantizedAlone
from onnxq.tuning.search.config_changes import form_in
from onnxq.tuning.search.layers import Layers
from tests.tuning.made_up import Layer, Network

NETWORK = Network((Layer(1e-4, 0.5, 0.2), Layer(1e-2, 0.5, 0.3)))


def test_a_group_alone_has_all_others_in_float() -> None:
    lowest_precision = QuantizedAlone(default_qconfig_mapping(), NETWORK.groups)
    alone = lowest_precision.alone(Layers(NETWORK.groups[1:]))
    assert [form_in(alone, group) for group in NETWORK.groups] == [NodeForm.FLOAT, NodeForm.INTEGER]
    together = [form_in(lowest_precision.together, group) for group in NETWORK.groups]
    assert together == [NodeForm.INTEGER] * 2
