from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

import onnxq.pytorch as op
from onnxq.checking.cross_check import cross_check
from onnxq.graph.edit import FreeNames
from onnxq.observers import MovingAverageMinMaxObserver
from onnxq.ort import runtime
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigMapping, onnxq_default_qat_qconfig
from onnxq.qdq import tidy
from onnxq.qdq.read import array_of, dequantizer
from onnxq.qdq.tidy.unsigned import store_unsigned

pytestmark = pytest.mark.oracle

INPUTS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
HEAD = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,2,4,4] x) => ({outputs})
<float s = {{0.1}}, int8 z = {{-7}}, float t = {{0.05}}, int8 v = {{0}}, int8 low = {{0}},
 int8 high = {{127}}, int8[2,2,1,1] w = {{1, 2, -3, 4}}, int8[1] k = {{5}}>
{{ {body} }}"""
ACTIVATIONS = {
    "symmetric": {"quant_min": -128, "quant_max": 127, "qscheme": "per_tensor_symmetric"},
    "narrow": {"quant_min": -127, "quant_max": 127, "qscheme": "per_tensor_symmetric"},
    "affine": {"quant_min": -128, "quant_max": 127, "qscheme": "per_tensor_affine"},
}


def graph(body: str, outputs: str = "float[N,2,4,4] y") -> ir.Model:
    return ir.from_onnx_text(HEAD.format(body=body, outputs=outputs))


def stored(model: ir.Model) -> ir.Model:
    copy = model.clone()
    store_unsigned(copy, FreeNames(copy))
    return copy


def types(model: ir.Model) -> Counter[str]:
    return Counter(
        node.inputs[2].dtype.name
        for node in model.graph
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        and node.inputs[2] is not None
        and node.inputs[2].dtype is not None
    )


def run(model: ir.Model) -> list[np.ndarray]:
    x = np.random.default_rng(0).standard_normal((2, 2, 4, 4)).astype(np.float32) * 4
    with runtime.open_session(model, optimization=runtime.Optimization.NONE) as session:
        return session.run({"x": x})


@pytest.mark.parametrize(
    ("body", "unsigned", "signed"),
    [
        ("q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)", 2, 0),
        ("q = QuantizeLinear(x, s, z) c = Clip(q, low, high) y = DequantizeLinear(c, s, z)", 2, 0),
        (
            "q = QuantizeLinear(x, s, z) m = Transpose<perm=[0,1,3,2]>(q)"
            " a = DequantizeLinear(q, s, z) b = DequantizeLinear(m, s, z) y = Add(a, b)",
            3,
            0,
        ),
        (
            "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z)"
            " b = DequantizeLinear(k, t, v) y = Add(a, b)",
            3,
            0,
        ),
        (
            "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z)"
            " b = DequantizeLinear(w, t, v) y = Conv(a, b)",
            2,
            1,
        ),
    ],
    ids=["plain", "clip", "moved", "constant operand", "weight"],
)
def test_integers_become_unsigned_and_numbers_stay(body: str, unsigned: int, signed: int) -> None:
    model = graph(body)
    made = stored(model)
    assert types(made) == Counter({"UINT8": unsigned, "INT8": signed})
    for before, after in zip(run(model), run(made), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    "body",
    [
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) r = Cast<to=1>(q)",
        "r = QuantizeLinear(x, s, z) y = DequantizeLinear(r, s, z)",
    ],
    ids=["read as numbers", "returned"],
)
def test_integers_that_leave_stay_signed(body: str) -> None:
    kind = "int8" if body.startswith("r") else "float"
    model = graph(body, f"float[N,2,4,4] y, {kind}[N,2,4,4] r")
    assert types(stored(model)) == Counter({"INT8": 2})


class Residual(nn.Module):
    """Two convolutions, a sum, a pool and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, 8, 8) -> (N, 4)."""
        x = self.one(x).relu()
        x = (self.two(x) + x).relu()
        y: torch.Tensor = self.last(self.pool(x).flatten(1))
        return y


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_trained_int8_activations_run_in_integers_as_trained(name: str) -> None:
    torch.manual_seed(0)
    spec = MovingAverageMinMaxObserver.with_args(dtype="qint8", **ACTIVATIONS[name])
    entry = QConfig(FakeQuantSpec(spec), onnxq_default_qat_qconfig.weight)
    net = Residual().train()
    prepared = op.prepare_qat(net, inputs=(INPUTS,), qconfig=QConfigMapping(entry))
    prepared(INPUTS)
    prepared.eval()
    qdq = op.export(prepared, (INPUTS,))
    for model in (qdq, tidy.as_format(qdq, "qoperator")):
        uses = runtime.integer_nodes(runtime.optimized_graph(model))
        assert not runtime.count(uses, runtime.NodeKind.FLOAT)
        assert runtime.count(uses, runtime.NodeKind.INTEGER)["QLinearConv"] == 2
        cross_check(model, {"x": INPUTS.numpy()}).check()
        assert not [v for n in model.graph for v in n.outputs if v.dtype == ir.DataType.INT8]
    with torch.no_grad(), runtime.open_session(qdq) as session:
        difference = np.abs(session.run({"x": INPUTS.numpy()})[0] - prepared(INPUTS).numpy())
    # ties that float and integers round apart on the way: by one LSB in the input of the last layer
    (last,) = (node for node in qdq.graph if node.op_type == "Gemm")
    source = dequantizer(last.inputs[0])
    assert source is not None
    scale = array_of(source, 1)
    assert scale is not None
    rows = np.abs(net.last.weight.detach().numpy()).sum(1)
    assert difference.max() <= 1.01 * float(scale) * rows.max()
