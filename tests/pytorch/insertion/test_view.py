"""The view of both graphs: what is quantized, and around which tensors."""

from __future__ import annotations

import pytest

from onnxq.graph.walk import node_name
from tests.pytorch.insertion.viewed import small

pytestmark = pytest.mark.oracle


def test_it_says_what_is_quantized_and_for_which_nodes_a_tensor_is_rounded() -> None:
    view = small()
    (relu,) = [node for node in view.nodes if node.op_type == "Relu"]
    (conv,) = [node for node in view.nodes if node.outputs[0].name == "getitem"]
    decision = view.quantized(relu)
    assert decision is not None
    assert decision.folded_into == node_name(conv)
    assert view.quantized(None) is None
    assert view.constants == {"place"}
    assert set(view.around("relu")) == {node_name(relu), node_name(conv), "node_conv2d_1"}
    assert conv in view.fusible
    assert relu not in view.fusible
    assert next(iter(view.values)) == "x"
