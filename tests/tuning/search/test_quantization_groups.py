from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.static.prepare import prepare
from onnxq.tuning.search.quantization_groups import quantization_groups_of
from tests.examples import ALL_INTEGERS, model, network, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.tuning.search.quantization_groups import QuantizationGroup


def groups(
    source: onnx.ModelProto, asked: QConfigMapping | None = None
) -> tuple[QuantizationGroup, ...]:
    prepared = prepare(source, ALL_INTEGERS, "x86-vnni")
    return quantization_groups_of(
        prepared.model, prepared.decisions, asked or default_qconfig_mapping()
    )


def names(group: QuantizationGroup) -> list[str]:
    return [member.name for member in group.members]


def test_cheap_nodes_go_with_the_node_that_makes_their_first_operand() -> None:
    first, second, gemm = groups(network())
    assert names(first)[:2] == ["conv1", "relu1"]
    assert names(second)[0] == "conv2"
    assert names(gemm)[0] == "gemm"
    assert "softmax" not in names(first) + names(second) + names(
        gemm
    )  # no group: float at any rate


def test_weights_are_counted_without_biases() -> None:
    assert [group.weights for group in groups(network())] == [8 * 3 * 9, 8 * 8 * 9, 80]


def test_forms_are_those_that_prepare_and_the_operator_have() -> None:
    first, *_, gemm = groups(network())
    assert Precision.INT8_FLOAT_OUTPUT not in first.precisions  # a Conv needs a Q behind it
    assert {Precision.INT8_FLOAT_OUTPUT, Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY} <= set(
        gemm.precisions
    )
    assert first.lowest_precision is gemm.lowest_precision is Precision.INT8


def test_nodes_that_the_user_named_are_in_no_group() -> None:
    asked = default_qconfig_mapping().set_node("conv1", None).set_op_type("Gemm", None)
    assert "conv1" not in [group.anchor.name for group in groups(network(), asked)]
    assert "gemm" not in [group.anchor.name for group in groups(network(), asked)]


def test_matmuls_of_activations_are_a_layer_type_of_their_own() -> None:
    matmul = helper.make_node("MatMul", ["x", "w"], ["h"], "weighted")
    attention = helper.make_node("MatMul", ["h", "x"], ["y"], "attention")
    source = model([matmul, attention], {"w": weights(1, 4, 4)}, {"x": ["N", 4, 4]})
    assert [group.layer_type for group in groups(source)] == ["MatMul", "MatMul of activations"]


def test_node_with_a_dynamic_form_alone_is_a_group() -> None:
    constants = {"w": weights(1, 1, 16, 3), "r": weights(2, 1, 16, 4)}
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y"], "lstm", hidden_size=4)
    (group,) = groups(model([lstm], constants, {"x": [5, "N", 3]}))
    assert group.precisions[0] is Precision.FLOAT
    assert Precision.DYNAMIC_INT8 in group.precisions
    assert Precision.INT8 not in group.precisions
    assert group.weights == np.prod([16, 3]) + np.prod([16, 4])


def test_cheap_nodes_that_begin_in_another_form_than_their_group_are_groups_themselves() -> None:
    """Squares in float behind a convolution in integers, as an audio front end has them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Mul", ["c", "c"], ["m"], "square"),
        helper.make_node("Add", ["m", "m"], ["y"], "twice"),
    ]
    source = model(nodes, {"w": weights(1, 4, 3, 3, 3)}, {"x": ["N", 3, 8, 8]})
    prepared = prepare(source, ALL_INTEGERS, "x86-vnni")
    begun = {"conv": Precision.INT8, "square": Precision.FLOAT, "twice": Precision.FLOAT}
    together, apart = (
        quantization_groups_of(
            prepared.model, prepared.decisions, default_qconfig_mapping(), precisions
        )
        for precisions in ((), (begun,))
    )
    assert [names(group) for group in together] == [["conv", "square", "twice"]]
    assert [names(group) for group in apart] == [["conv"], ["square", "twice"]]
    assert apart[1].precisions == (Precision.FLOAT, Precision.INT8)
