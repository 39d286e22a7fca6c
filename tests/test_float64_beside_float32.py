"""Models some of whose nodes are float64: these stay as they are, the others are quantized."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from tests.dynamic_models import normal, parsed
from tests.examples import weights

WIDTH = 64
BODIES = {
    "behind the last float32 node": "d = Cast<to=11>(h) y = Mul(d, k)",
    "between float32 nodes": "d = Cast<to=11>(h) e = Mul(d, k) f = Cast<to=1>(e) y = MatMul(f, w2)",
}
"""Nodes behind h (N, 64), float32."""


def model(body: str) -> onnx.ModelProto:
    kind = "float" if body.endswith("w2)") else "double"
    made = parsed(
        f"m (float[N,{WIDTH}] x) => ({kind}[N,{WIDTH}] y) {{"
        f" a = MatMul(x, w) h = Relu(a) {body} }}",
        {"w": weights(1, WIDTH, WIDTH), "w2": weights(2, WIDTH, WIDTH)},
    )
    k = weights(3, WIDTH).astype(np.float64)
    made.graph.initializer.append(onnx.numpy_helper.from_array(k, "k"))
    return made


@pytest.mark.parametrize("where", BODIES)
def test_float64_nodes_stay_as_they_are(where: str) -> None:
    source, x = model(BODIES[where]), normal(32, WIDTH)
    made = onnxq.quantize(source, {"x": x}, target="portable")
    double = [n for n in made.graph if n.outputs[0].dtype == ir.DataType.DOUBLE]
    assert [node.op_type for node in double] == ["Cast", "Mul"]
    assert made.verdict is not None
    assert made.verdict.integer_nodes
    (output,) = made.verdict.outputs
    assert output.sqnr_db is not None
    assert output.sqnr_db > 25  # 7-bit weights
