from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxq.checking.cross_check import cross_check
from onnxq.checking.visible import Visible, handed_out, type_name
from onnxq.ort import runtime
from onnxq.ort.expose import expose, observable
from tests.examples import as_ir, model, weights

if TYPE_CHECKING:
    import onnx_ir as ir

ODD = {
    "int4": (TensorProto.INT4, -3),
    "uint4": (TensorProto.UINT4, 3),
    "float8_e4m3fn": (TensorProto.FLOAT8E4M3FN, 0.0),
    "float8_e5m2": (TensorProto.FLOAT8E5M2, 0.0),
}


def there_and_back(kind: str, *, integers_out: bool = False) -> ir.Model:
    """x -> Q -> q -> DQ -> y, with integers of that type."""
    parameters = ["s", "z"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *parameters], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", *parameters], ["y"], "dequantize"),
    ]
    dtype, zero = ODD[kind]
    outputs = {"y": 1, "q": dtype} if integers_out else {"y": 1}
    proto = model(nodes, {"s": np.array(0.1, np.float32)}, {"x": ["N", 8]}, outputs, opset=21)
    proto.graph.initializer.append(helper.make_tensor("z", dtype, [], [zero]))
    return as_ir(proto)


def opened(target: ir.Model) -> Visible:
    return Visible(expose(target, observable(target)))


@pytest.mark.parametrize("kind", ODD)
def test_types_that_numpy_lacks_come_as_ml_dtypes(kind: str) -> None:
    visible = opened(there_and_back(kind))
    with visible.session:
        outputs, inner = visible.run({"x": weights(0, 2, 8)})
    integers = np.asarray(inner["q"])
    assert integers.dtype.name == kind
    assert integers.shape == (2, 8)
    np.testing.assert_array_equal(outputs["y"], inner["y"])
    assert "q" not in outputs


@pytest.mark.parametrize("kind", ODD)
def test_nodes_on_such_types_are_compared(kind: str) -> None:
    findings = cross_check(there_and_back(kind), {"x": weights(0, 4, 8)})
    assert [n.op_type for n in findings.nodes] == ["QuantizeLinear", "DequantizeLinear"]
    findings.check()


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_outputs_of_such_types_are_compared(kind: str) -> None:
    findings = cross_check(there_and_back(kind, integers_out=True), {"x": weights(0, 4, 8)})
    assert {o.name: o.elements for o in findings.outputs} == {"y": 32, "q": 32}
    findings.check()


def test_types_are_named_as_onnx_runtime_names_them() -> None:
    with runtime.open_session(there_and_back("int4", integers_out=True)) as session:
        assert type_name(session, "q") == "int4"
        assert handed_out(session) == ["y"]
