from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnxq.errors import UnsupportedError
from onnxq.pytorch.exporting.optimized import check_request, own_weights, tidy

pytestmark = pytest.mark.oracle


def model() -> ir.Model:
    return ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["": 21]>
            net (float[N,2] x, float[2,2] s) => (float[N,2] y)
            <float[2] w = {1.0, 2.0}> { m = MatMul(x, s) y = Add(m, w) }"""
        )
    )


@pytest.mark.parametrize(
    ("inputs", "axes", "opset", "outputs", "message"),
    [
        (["x", "s"], {}, 20, None, "returned opset 21 where 20 was asked.*Ask for opset 21"),
        (["x"], {}, 21, None, r"gave inputs .* forward takes \['x'\]"),
        (["x", "s"], {"s": {0: "batch"}}, 21, None, "fixed axis 0 of input 's'"),
        (["x", "s"], {"x": {0: "batch"}}, 21, ["z"], r"gave outputs \['y'\]; asked were \['z'\]"),
    ],
)
def test_what_is_not_as_asked_is_an_error(
    inputs: list[str],
    axes: dict[str, dict[int, str]],
    opset: int,
    outputs: list[str] | None,
    message: str,
) -> None:
    check_request(model(), ["x", "s"], {"x": {0: "N"}}, 21, ["y"])
    with pytest.raises(UnsupportedError, match=message):
        check_request(model(), inputs, axes, opset, outputs)


def test_inner_names_give_way_to_inputs_and_outputs() -> None:
    net = model()
    matmul, _ = net.graph
    matmul.outputs[0].name = "y"
    net.graph.initializers["w"].name = "x"
    matmul.metadata_props["pkg.torch.onnx.stack_trace"] = "/home/me"
    matmul.metadata_props["pkg.torch.onnx.name_scopes"] = "fc"
    tidy(net)
    assert [v.name for v in (*net.graph.inputs, *net.graph.outputs)] == ["x", "s", "y"]
    assert matmul.outputs[0].name == "y_inner"
    assert list(net.graph.initializers) == ["x_inner"]
    assert dict(matmul.metadata_props) == {"pkg.torch.onnx.name_scopes": "fc"}
    onnx.checker.check_model(ir.to_proto(net), full_check=True)


def test_weights_become_copies_of_the_same_values() -> None:
    net = model()
    before = net.graph.initializers["w"].const_value
    assert before is not None
    own_weights(net)
    after = net.graph.initializers["w"].const_value
    assert after is not before
    assert type(after) is ir.Tensor
    assert (after.numpy() == before.numpy()).all()
