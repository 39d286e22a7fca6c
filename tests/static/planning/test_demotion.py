from __future__ import annotations

from onnxq.operator import Float
from onnxq.static.placing.decision import Quantize
from onnxq.static.planning.demotion import demoted
from onnxq.static.prepare import prepare
from tests.static.planned import model, planned


def test_a_node_whose_tensor_has_no_numbers_is_float_with_those_folded_into_it() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    conv, relu = prepared.decisions
    folded = prepared.decisions[relu]
    assert isinstance(folded, Quantize)
    assert folded.folded_into == conv
    left = demoted(prepared, {"x": "no sample reached it"}, {})
    assert left == {conv: Float("no sample reached it"), relu: Float("no sample reached it")}


def test_nodes_with_all_their_numbers_keep_their_decisions() -> None:
    made, prepared, _ = planned(model())
    assert demoted(prepared, {}, made.tensors) == prepared.decisions
