from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxq
from onnxq import catalog, reference
from onnxq.errors import ModelError
from onnxq.graph.io import load
from onnxq.ort import runtime
from onnxq.reference.schema import check_proto, signature_of

MICROSOFT = "com.microsoft"


def one(
    node: onnx.NodeProto, inputs: int = 1, opset: int = 21, out: int = TensorProto.UINT8
) -> onnx.ModelProto:
    """y of a node on uint8 or float inputs named x, x1, ...; scales and the like are constants."""
    declared = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])]
    declared += [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, ["N", 4])
        for i in range(1, inputs)
    ]
    y = helper.make_tensor_value_info("y", out, ["N", 4])
    constants = [
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.array(3, np.uint8), "zero"),
    ]
    graph = helper.make_graph([node], "g", declared, [y], constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_a_misspelt_attribute_is_an_error_that_names_the_nearest() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], "q", axes=1)
    message = (
        "node QuantizeLinear 'q' has an attribute 'axes', which QuantizeLinear does not have in "
        "opset 21 of ai.onnx; it has: 'axis', 'block_size', 'output_dtype', 'saturate'. "
        "Did you mean 'axis'"
    )
    with pytest.raises(ModelError) as caught:
        reference.evaluator(one(node))
    assert message in str(caught.value)


def test_an_attribute_of_a_later_opset_is_one_that_it_does_not_have() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], "q", block_size=2)
    with pytest.raises(ModelError, match=r"'block_size'.*opset 13 of ai.onnx; it has: 'axis'\."):
        reference.evaluator(one(node, opset=13))


def test_a_surplus_input_is_an_error_that_names_it() -> None:
    node = helper.make_node("Relu", ["x", "", "x1"], ["y"], "r")
    with pytest.raises(ModelError, match="node Relu 'r' has input 'x1' in slot 2; Relu has 1 inpu"):
        reference.evaluator(one(node, 2))


def test_a_surplus_output_is_an_error_too() -> None:
    node = helper.make_node("Relu", ["x"], ["y", "z"])
    with pytest.raises(ModelError, match="node Relu 'y' has output 'z' in slot 1"):
        reference.evaluator(one(node))


def test_an_absent_attribute_that_onnx_requires_is_an_error_that_names_it() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], "p")
    with pytest.raises(ModelError, match="node MaxPool 'p' has no attribute 'kernel_shape'"):
        reference.evaluator(one(node))


def test_absent_ones_at_the_end_are_none() -> None:
    node = helper.make_node("Relu", ["x", "", ""], ["y", ""])
    check_proto(node, {"": 21})


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_both_names_of_the_default_domain_are_known(domain: str, imported: str) -> None:
    inputs = ["x", "scale", "zero"]
    node = helper.make_node("QuantizeLinear", inputs, ["y"], "q", domain=domain, block_size=2)
    check_proto(node, {imported: 21})
    with pytest.raises(ModelError, match="'block_size'"):
        check_proto(node, {imported: 13})


def test_operators_of_com_microsoft_are_held_to_onnx_runtimes_schemas() -> None:
    node = helper.make_node(
        "QLinearAveragePool", ["x"], ["y"], "pool", domain=MICROSOFT, kernel_shap=[2, 2]
    )
    with pytest.raises(ModelError, match=r"'kernel_shap'.*Did you mean 'kernel_shape'"):
        reference.evaluator(one(node))


def test_bodies_and_functions_are_looked_at() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
      m (float[N] x, bool c) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[N] p) { p = local.f(x) },
                    else_branch = e () => (float[N] q) { q = Elu<BODY>(x) }>
      }
      <domain: "local", opset_import: ["" : 21]> f (a) => (b) { b = Elu<FUNCTION>(a) }"""
    right = text.replace("BODY", "alpha = 1.0").replace("FUNCTION", "alpha = 1.0")
    reference.evaluator(onnx.parser.parse_model(right))
    for place in ("BODY", "FUNCTION"):
        wrong = text.replace(place, "alfa = 1.0").replace("<BODY>", "").replace("<FUNCTION>", "")
        with pytest.raises(ModelError, match=r"'alfa'.*Did you mean 'alpha'"):
            reference.evaluator(onnx.parser.parse_model(wrong))


def test_an_evaluator_of_ones_own_checks_when_it_is_made() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], "q", axes=1)
    with pytest.raises(ModelError, match="'axes'"):
        ReferenceEvaluator(one(node), new_ops=[*reference.op_classes()])


def test_operators_of_unknown_domains_have_no_schema() -> None:
    node = helper.make_node("Mine", ["a", "b"], ["y"], domain="my.own", what=1)
    check_proto(node, {"": 21, "my.own": 1})
    assert signature_of("my.own", "Mine", 1) is None


def test_every_operator_of_the_catalog_has_a_schema() -> None:
    kinds = {(d, op.op_type) for op in catalog.all_integer_operators() for d in op.domains}
    kinds |= {(op.domain, op.op_type) for op in catalog.all_operators()}
    assert not [kind for kind in kinds if signature_of(*kind, 1_000) is None]


def test_what_onnx_runtime_optimized_passes() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], "q")
    optimized = runtime.optimized_graph(load(one(node)))
    assert onnxq.reference.evaluator(optimized).run(None, {"x": np.ones((1, 4), np.float32)})


def test_an_operator_of_microsoft_needs_its_inputs() -> None:
    node = helper.make_node("MatMulIntegerToFloat", ["x"], ["y"], "m", domain=MICROSOFT)
    with pytest.raises(ModelError, match="'m' has 1 inputs; it needs 4"):
        reference.evaluator(one(node, out=TensorProto.FLOAT))
