from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxq.ort import runtime
from onnxq.ort.kept_copy import KEPT_COPY


@pytest.mark.parametrize(("op_type", "stays"), [(KEPT_COPY, True), ("Identity", False)])
def test_the_copy_stays_in_the_graph_that_runs_and_an_identity_does_not(
    op_type: str, stays: bool
) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] x) => (float[2, 3] y)'
        f" {{ t = Tanh(x) c = {op_type}(t) y = Relu(c) }}"
    )
    found = {node.op_type for node in runtime.optimized_graph(model).graph}
    assert (op_type in found) == stays
