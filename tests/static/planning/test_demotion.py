from __future__ import annotations

from onnxq.operator import Float
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import demoted
from onnxq.static.prepare import prepare
from onnxq.static.reasons import NeverObserved
from tests.static.planned import model, planned


def test_a_node_whose_tensor_has_no_numbers_is_float_with_those_folded_into_it() -> None:
    prepared = prepare(model(), None, "x86-vnni")
    conv, relu = prepared.decisions
    folded = prepared.decisions[relu]
    assert isinstance(folded, Quantize)
    assert folded.folded_into == conv
    reason = NeverObserved("x")
    left = demoted(prepared, {"x": reason}, {})
    assert left == {conv: Float(reason), relu: Float(reason)}


def test_nodes_with_all_their_numbers_keep_their_decisions() -> None:
    made, prepared, _ = planned(model())
    assert demoted(prepared, {}, made.tensors) == prepared.decisions
