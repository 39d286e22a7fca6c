from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.dynamic.dynamic_decision import DynamicPlan, QuantizeDynamic
from onnxq.errors import ModelError, NothingQuantizedError
from onnxq.observers import NarrowRangeObserver, PerChannelMinMaxObserver
from onnxq.operator import Float, Precision
from onnxq.qconfig import (
    QConfigDynamic,
    QConfigMapping,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from onnxq.qconfig._values import DYNAMIC_PRECISIONS
from onnxq.qparams import PerChannel, PerTensor
from onnxq.targets import DynamicSpeedup
from tests.dynamic_models import (
    ROWS,
    SIDE,
    UNMEASURED,
    linear,
    normal,
    op_types,
    planned,
    quantized,
    run,
    stored,
)
from tests.examples import model, network, weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq import targets
    from onnxq.dynamic.dynamic_decision import DynamicDecision
    from onnxq.dynamic.spec import DynamicSpec


def decided(
    source: onnx.ModelProto, node: str, spec: DynamicSpec = None, **options: str
) -> DynamicDecision:
    return planned(source, spec, **options)[1].decisions[node]


def chosen(source: onnx.ModelProto, node: str, spec: DynamicSpec = None) -> QuantizeDynamic:
    decision = decided(source, node, spec)
    assert isinstance(decision, QuantizeDynamic), decision
    return decision


def reason(source: onnx.ModelProto, node: str, spec: DynamicSpec = None) -> str:
    decision = decided(source, node, spec)
    assert isinstance(decision, Float), decision
    return decision.reason.words


def test_every_node_has_a_decision_in_graph_order() -> None:
    source, plan = planned(linear())
    assert list(plan.decisions) == [node.name for node in source.graph] == ["linear", "add"]
    assert reason(linear(), "add") == "it has no weights that dynamic quantization stores"


def test_a_weight_gets_a_scale_per_column() -> None:
    decision = chosen(linear(), "linear")
    (weight,) = decision.weights
    assert decision.precision is Precision.DYNAMIC_INT8
    assert weight.qparams is not None
    assert weight.qparams.granularity == PerChannel(1)
    assert weight.qparams.scale.shape == (SIDE,)
    assert (weight.tensor, weight.slot) == ("w", 1)


@pytest.mark.parametrize(("target", "limit"), [("portable", 64), ("x86-vnni", 127), ("arm64", 127)])
def test_integer_matmuls_keep_to_the_integers_that_the_target_sums_exactly(
    target: str, limit: int
) -> None:
    entry = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.DYNAMIC_INT8)
    made = quantized(linear(), entry, target=target)
    integers = made.graph.initializers["w_quantized"].const_value
    assert integers is not None
    assert np.abs(integers.numpy().astype(int)).max() == limit
    decision = decided(linear(), "linear", entry, target=target)
    assert isinstance(decision, QuantizeDynamic)
    assert f"within +-{limit}" in decision.how.words


def test_weights_that_are_computed_with_in_float_have_all_integers_but_the_smallest() -> None:
    entry = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.WEIGHT_ONLY)
    (weight,) = chosen(linear(), "linear", entry).weights
    assert weight.integer_limit == 127


def test_the_documented_default_has_one_scale() -> None:
    (weight,) = chosen(linear(), "linear", default_dynamic_qconfig).weights
    assert weight.qparams is not None
    assert weight.qparams.granularity == PerTensor()


def test_an_observer_of_wide_integers_is_cut_to_the_target() -> None:
    entry = QConfigDynamic(
        PerChannelMinMaxObserver.with_args(dtype="qint8", qscheme="per_channel_symmetric")
    )
    (weight,) = chosen(linear(), "linear", entry).weights
    assert weight.integer_limit == 64


def test_readers_of_one_weight_share_its_narrowest_integers() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
            helper.make_node("MatMul", ["p", "w"], ["y"], "second"),
        ],
        {"w": weights(1, SIDE, SIDE)},
        {"x": ["N", SIDE]},
    )
    entry = onnxq_default_dynamic_qconfig
    spec = {"first": entry, "second": QConfigDynamic(entry.weight, Precision.WEIGHT_ONLY)}
    assert chosen(source, "second", spec).weights == chosen(source, "first", spec).weights
    assert stored(quantized(source, spec)) == {"w_quantized": "INT8"}


def test_a_tensor_may_have_its_own_observer_or_stay_float() -> None:
    mapping = QConfigMapping(onnxq_default_dynamic_qconfig)
    own = mapping.set_tensor("w", NarrowRangeObserver.with_args(quant_max=31))
    (weight,) = chosen(linear(), "linear", own).weights
    assert weight.qparams is not None
    largest = np.abs(weights(1, SIDE, SIDE)).max(0)
    np.testing.assert_array_equal(weight.qparams.scale, largest / np.float32(31))
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
            helper.make_node("MatMul", ["p", "v"], ["y"], "second"),
        ],
        {"w": weights(1, SIDE, SIDE), "v": weights(2, SIDE, SIDE)},
        {"x": ["N", SIDE]},
    )
    assert "tensor 'w' in float" in reason(source, "first", mapping.set_tensor("w", None))


# --- speed and size


def on(ratio: float, form: str = "dynamic_int8") -> targets.Target:
    gains = (DynamicSpeedup("MatMul", form, 8, SIDE, SIDE, ROWS, ratio),)
    return dataclasses.replace(UNMEASURED, name="mine", dynamic_speedups=gains)


def test_speed_leaves_in_float_what_the_target_measured_as_slower() -> None:
    source, plan = planned(linear(), target=on(0.8))
    decision = plan.decisions["linear"]
    assert isinstance(decision, Float)
    assert "on mine it would run at 0.80 of its float speed" in decision.reason.words
    assert "objective 'size' quantizes it" in decision.reason.words
    assert plan.slower == ("linear",)
    assert plan.notes[0] == (
        "nothing is quantized: objective 'speed' leaves in float what would be slower in every "
        "precision on mine, and here that is every node with weights; objective 'size' "
        "(--objective size) quantizes them anyway."
    )
    with pytest.warns(UserWarning, match="nothing is quantized"):
        made = quantized(linear(), target=on(0.8))
    assert op_types(made) == [node.op_type for node in source.graph]
    assert "onnxq.format" not in made.metadata_props
    assert "MatMulInteger" in op_types(quantized(made))


def test_open_sizes_are_said_to_count_as_one_row() -> None:
    opened, fixed = (linear(rows=rows) for rows in ("N", ROWS))
    _, plan = planned(opened, target=on(0.8))
    decision = plan.decisions["linear"]
    assert isinstance(decision, Float)
    assert (
        "(precision 'dynamic_int8', at 1 row: the model leaves sizes open)" in decision.reason.words
    )
    assert plan.notes[1].startswith("linear: in float at the sizes that are assumed")
    _, known = planned(fixed, target=on(0.8))
    assert "(precision 'dynamic_int8')" in str(known.decisions["linear"])
    assert len(known.notes) == 1


def test_size_quantizes_what_is_slower() -> None:
    _, plan = planned(linear(), target=on(0.8), objective="size")
    assert list(plan.quantized) == ["linear"]
    assert plan.slower == ()


def test_a_form_that_is_named_is_not_weighed() -> None:
    entry = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, Precision.DYNAMIC_INT8)
    _, plan = planned(linear(), entry, target=on(0.8))
    assert list(plan.quantized) == ["linear"]


def test_float16_is_not_weighed() -> None:
    _, plan = planned(linear(), dtype="float16", target=on(0.8))
    assert plan.quantized["linear"].precision is Precision.WEIGHT_ONLY_FLOAT16


# --- the plan as a value


def test_equal_models_have_equal_plans_and_others_not() -> None:
    _, plan = planned(linear())
    assert plan == planned(linear())[1]
    assert plan != planned(linear(), target="x86-vnni", objective="size")[1]
    assert len({plan, planned(linear())[1]}) == 1


@pytest.mark.parametrize("spec", [None, float16_dynamic_qconfig])
def test_a_plan_survives_saving(spec: DynamicSpec, tmp_path: Path) -> None:
    _, plan = planned(linear(), spec)
    plan.save(tmp_path / "plan.json")
    assert DynamicPlan.load(tmp_path / "plan.json") == plan


# --- bad input


def test_a_model_without_weights_is_refused_and_the_message_lists_what_it_has() -> None:
    source = model(
        [
            helper.make_node("Relu", ["x"], ["a"], "relu"),
            helper.make_node("MatMul", ["a", "a"], ["y"], "square"),
        ],
        {},
        {"x": [SIDE, SIDE]},
    )
    with pytest.raises(NothingQuantizedError) as caught:
        quantized(source)
    text = str(caught.value)
    assert "no weights to quantize. The model has 1 Relu, 1 MatMul" in text
    assert "MatMul 'square': " in text
    assert "Gemm" in text


def test_a_qconfig_that_leaves_everything_in_float_is_refused() -> None:
    with pytest.raises(
        NothingQuantizedError, match="MatMul 'linear': the qconfig leaves it in float"
    ):
        quantized(linear(), QConfigMapping())


def test_a_weight_that_is_an_input_stays_float() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "v"], ["p"], "computed"),
            helper.make_node("MatMul", ["p", "w"], ["y"], "constant"),
        ],
        {"w": weights(1, SIDE, SIDE)},
        {"x": ["N", SIDE], "v": [SIDE, SIDE]},
    )
    assert "computed at run time" in reason(source, "computed")
    assert chosen(source, "constant").precision is Precision.DYNAMIC_INT8


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_weights_of_nan_or_inf_are_refused_by_name(bad: float, dtype: str) -> None:
    w = weights(1, SIDE, SIDE)
    w[3, 4] = bad
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "linear")], {"w": w}, {"x": ["N", SIDE]}
    )
    with pytest.raises(ModelError, match=r"^weight 'w' holds NaN or Inf; repair the model\.$"):
        quantized(source, dtype=dtype)
    with pytest.raises(ModelError, match=r"^weight 'w' holds NaN or Inf; repair the model\.$"):
        planned(source, target=on(0.8))  # where float is faster, too


@pytest.mark.parametrize("form", [None, *DYNAMIC_PRECISIONS])
def test_weights_of_zeros_give_zeros(form: Precision | None) -> None:
    w = np.zeros((SIDE, SIDE), np.float32)
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "linear")], {"w": w}, {"x": ["N", SIDE]}
    )
    entry = QConfigDynamic(onnxq_default_dynamic_qconfig.weight, form)
    made = quantized(
        source, float16_dynamic_qconfig if form is Precision.WEIGHT_ONLY_FLOAT16 else entry
    )
    # MatMulNBits adds 128 * scale * sum(x), of the least scale 2^-23, and takes it away in float32
    rounding = (
        2.0**-23 * 128 * 2.0**-23 * SIDE * 4 if form is Precision.WEIGHT_ONLY_GROUPWISE else 0
    )
    assert np.abs(run(made, {"x": normal(ROWS, SIDE)})).max() <= rounding


def test_weights_that_float16_does_not_hold_stay_float() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "large"),
            helper.make_node("MatMul", ["p", "v"], ["y"], "usual"),
        ],
        {"w": weights(1, SIDE, SIDE) * np.float32(1e6), "v": weights(2, SIDE, SIDE)},
        {"x": ["N", SIDE]},
    )
    assert "which float16 does not hold" in reason(source, "large", float16_dynamic_qconfig)


def test_the_plan_says_what_becomes_of_a_float16_model() -> None:
    made = quantized(network(dtype=onnx.TensorProto.FLOAT16))
    assert "MatMulInteger" in op_types(made)
    _, plan = planned(network(dtype=onnx.TensorProto.FLOAT16))
    assert any("float16 or bfloat16; it computes in float32" in note for note in plan.notes)


def test_double_models_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"is double.*Export the model in float32"):
        quantized(network(dtype=onnx.TensorProto.DOUBLE))


@pytest.mark.parametrize("entry", [onnxq_default_dynamic_qconfig, float16_dynamic_qconfig])
def test_a_quantized_model_is_refused(entry: QConfigDynamic) -> None:
    made = quantized(linear(), entry)
    with pytest.raises(ModelError, match="the model is quantized already"):
        quantized(made)
