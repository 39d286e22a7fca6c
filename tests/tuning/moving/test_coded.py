from __future__ import annotations

from onnxq.operator import Precision
from onnxq.qconfig import default_qconfig_mapping
from onnxq.tuning.moving.coded import CodedMappings
from onnxq.tuning.moving.kinds import Alike
from onnxq.tuning.moving.moves import form_in
from tests.tuning.made_up import Layer, Network

NETWORK = Network((Layer(1e-4, 0.5, 0.2), Layer(1e-2, 0.5, 0.3)))


def test_a_group_alone_has_all_others_in_float() -> None:
    coded = CodedMappings(default_qconfig_mapping(), NETWORK.units)
    alone = coded.alone(Alike(NETWORK.units[1:]))
    assert [form_in(alone, unit) for unit in NETWORK.units] == [Precision.FLOAT, Precision.INT8]
    together = [form_in(coded.together, unit) for unit in NETWORK.units]
    assert together == [Precision.INT8] * 2
