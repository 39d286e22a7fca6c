from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxq.dtypes import INT4, INT8, QDType
from onnxq.dynamic.choose_precision import (
    choose_precision,
    matrix_sizes,
    rows_of,
    stored_type,
)
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.dynamic.reasons import SlowerThanFloat
from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, NoopObserver
from onnxq.operator import DynamicRule, DynamicWeight, Float, Operator, Precision
from onnxq.operators.gemm import Gemm
from onnxq.operators.gru import GRU
from onnxq.operators.lstm import LSTM
from onnxq.operators.mat_mul import MatMul
from onnxq.targets import DynamicSpeedup, Target
from onnxq.targets.speedups import GATES
from tests.dynamic_models import UNMEASURED
from tests.examples import weights

INT, B, S, H = (
    Precision.DYNAMIC_INT8,
    Precision.WEIGHT_ONLY_GROUPWISE,
    Precision.WEIGHT_ONLY,
    Precision.WEIGHT_ONLY_FLOAT16,
)
RULE = DynamicRule((DynamicWeight(1, 1),), (INT, B, S, H))


def node(*shape: int, rows: int | str = 4) -> ir.Node:
    tensor = ir.tensor(weights(0, *shape), name="w")
    w = ir.Value(name="w", shape=ir.Shape(shape), const_value=tensor)
    x = ir.Value(name="x", shape=ir.Shape([rows, shape[0]]))
    return ir.node("MatMul", [x, w], name="n")


def with_channel_scales(**ratios: float) -> Target:
    """k = 8, n = 16, m = 4."""
    gains = tuple(DynamicSpeedup("MatMul", f, 8, 8, 16, 4, ratio) for f, ratio in ratios.items())
    return Target("mine", "", 127, dynamic_speedups=gains)


def decide(
    node: ir.Node,
    rule: DynamicRule,
    named: Precision | None,
    dtype: QDType | None,
    target: Target,
    objective: Objective,
) -> Precision | Float:
    return choose_precision(node, rule, named, dtype, target, objective, rows_of(node, rule, {}))


def choose(
    named: Precision | None = None,
    dtype: QDType | None = INT8,
    target: Target | None = None,
    objective: Objective = Objective.SPEED,
    rule: DynamicRule = RULE,
    shape: tuple[int, ...] = (8, 16),
) -> Precision | Float:
    return decide(node(*shape), rule, named, dtype, target or UNMEASURED, objective)


def test_nothing_measured_gives_the_usual_form() -> None:
    assert choose(target=with_channel_scales()) is INT


def test_the_fastest_form_is_chosen() -> None:
    assert (
        choose(
            target=with_channel_scales(dynamic_int8=1.2, weight_only_groupwise=2.0, weight_only=1.0)
        )
        is B
    )
    assert choose(target=with_channel_scales(dynamic_int8=1.2, weight_only_groupwise=0.5)) is INT


def test_of_8_bits_that_two_matmuls_read_integers_are_faster_than_blocks() -> None:
    first = node(8, 16)
    second = ir.node("MatMul", [ir.Value(name="other"), first.inputs[1]], name="m")
    gains = with_channel_scales(dynamic_int8=1.2, weight_only_groupwise=2.0, weight_only=1.0)
    for one in (first, second):
        assert decide(one, RULE, None, INT8, gains, Objective.SPEED) is INT
        assert decide(one, RULE, B, INT8, gains, Objective.SPEED) is B  # as it is named
        assert decide(one, RULE, B, INT4, UNMEASURED, Objective.SPEED) is B


def test_objective_size_takes_the_fastest_of_the_slow_ones() -> None:
    slow = with_channel_scales(dynamic_int8=0.2, weight_only_groupwise=0.5, weight_only=0.4)
    assert choose(target=slow, objective=Objective.SIZE) is B
    verdict = choose(target=slow)
    assert isinstance(verdict, Float)
    assert isinstance(verdict.reason, SlowerThanFloat)
    assert "0.50" in verdict.reason.words


def test_as_fast_as_float_is_fast_enough() -> None:
    assert choose(target=with_channel_scales(weight_only=1.0)) is S


def test_narrow_integers_have_the_integer_matmuls_of_bytes() -> None:
    assert choose(dtype=INT4) is INT
    assert choose(INT, INT4) is INT


def test_float16_is_half() -> None:
    assert choose(dtype=None) is H
    assert choose(H) is H


def test_a_form_that_the_operator_lacks_leaves_the_node_in_float() -> None:
    rule = DynamicRule(RULE.weights, (S,))
    verdict = choose(INT, rule=rule)
    assert isinstance(verdict, Float)
    assert verdict.reason.words == (
        "this MatMul has no precision 'dynamic_int8', which the qconfig asks for; it "
        "has 'weight_only'"
    )


def test_blocks_need_a_matrix() -> None:
    verdict = choose(B, shape=(2, 8, 16))
    assert isinstance(verdict, Float)
    assert "is no matrix" in verdict.reason.words
    no_channels = DynamicRule((DynamicWeight(1, None),), (B,))
    assert isinstance(choose(rule=no_channels), Float)


@pytest.mark.parametrize(("precision", "dtype"), [(B, None), (INT, None)])
def test_forms_and_types_that_exclude_each_other_are_refused(
    precision: Precision, dtype: QDType | None
) -> None:
    with pytest.raises(
        QConfigError, match=f"'n': the qconfig names precision '{precision.value}' and"
    ):
        choose(precision, dtype)


def test_the_type_of_the_integers_is_the_observers() -> None:
    assert stored_type([NarrowRangeObserver.with_args()]) == INT8
    assert stored_type([NarrowRangeObserver.with_args(dtype="int4", quant_max=7)]) == INT4
    assert stored_type([NoopObserver.with_args(dtype="float16")]) is None


def test_weights_of_one_node_have_one_type() -> None:
    both = [NarrowRangeObserver.with_args(), NoopObserver.with_args(dtype="float16")]
    verdict = stored_type(both)
    assert isinstance(verdict, Float)
    assert "different types: float16, int8" in verdict.reason.words


def test_wide_integers_are_refused() -> None:
    with pytest.raises(QConfigError, match="8 bits or fewer"):
        stored_type([MinMaxObserver.with_args(dtype="int16")])


def test_integers_that_are_too_narrow_for_blocks_leave_the_node_in_float() -> None:
    rule = DynamicRule(RULE.weights, (S, B), min_bits=8)
    verdict = choose(B, INT4, rule=rule)
    assert isinstance(verdict, Float)
    assert verdict.reason.words == "it takes integers of 8 bits or more, the qconfig asks for int4"
    assert choose(S, INT4, rule=rule) is S
    assert choose(None, INT4, rule=DynamicRule(RULE.weights, (B, S), min_bits=8)) is S


def matrices(left: bool, shape: tuple[int | str, ...], **trans: int) -> ir.Node:
    """A Gemm, where it is told what to transpose, or MatMul; K = 8, 16 columns of the constant."""
    constant = (16, 8) if left else (8, 16)
    turned = trans.get("transA" if left else "transB")
    sizes = constant[::-1] if turned else constant
    tensor = ir.tensor(weights(0, *sizes), name="w")
    w = ir.Value(name="w", shape=ir.Shape(sizes), const_value=tensor)
    ir.Graph([], [], nodes=[], initializers=[w])
    x = ir.Value(name="x", shape=ir.Shape(shape))
    return ir.node("Gemm" if trans else "MatMul", [w, x] if left else [x, w], trans, name="n")


@pytest.mark.parametrize(
    ("node", "rows"),
    [
        (matrices(False, (3, 8)), 3),
        (matrices(False, (2, 3, 8)), 6),
        (matrices(False, (8,)), 1),
        (matrices(False, ("N", 8)), None),
        (matrices(True, (8, 3)), 3),
        (matrices(True, (2, 8, 3)), 6),
        (matrices(True, (8, "N")), None),
        (matrices(False, (3, 8), transA=0), 3),
        (matrices(False, (8, 3), transA=1), 3),
        (matrices(True, (8, 3), transB=0), 3),
        (matrices(True, (3, 8), transB=1), 3),
    ],
)
def test_rows_lie_along_what_is_not_summed_over(node: ir.Node, rows: int | None) -> None:
    rule = (MatMul() if node.op_type == "MatMul" else Gemm()).dynamic_rule(node)
    assert isinstance(rule, DynamicRule)
    assert rows_of(node, rule, {}).known == rows


def test_where_the_batch_is_not_known_each_element_has_its_rows() -> None:
    for shape, rows in ((("N", 3, 8), 3), (("N", 8), 1), (("N", "T", 8), 1), ((2, 3, 8), 6)):
        matmul = matrices(False, shape)
        rule = MatMul().dynamic_rule(matmul)
        assert isinstance(rule, DynamicRule)
        assert rows_of(matmul, rule, {}).least == rows


@pytest.mark.parametrize("operator", [LSTM(), GRU()])
@pytest.mark.parametrize(
    ("shape", "layout", "batch"),
    [((256, 1, 8), 0, 1), (("T", 3, 8), 0, 3), ((3, 256, 8), 1, 3), ((5, "N", 8), 0, None)],
)
def test_rows_of_a_recurrence_are_its_batch_however_many_steps_it_has(
    operator: Operator, shape: tuple[int | str, ...], layout: int, batch: int | None
) -> None:
    recurrent = recurrence(operator, shape, hidden=8, layout=layout)
    rule = operator.dynamic_rule(recurrent)
    assert isinstance(rule, DynamicRule)
    assert rows_of(recurrent, rule, {}).known == batch


def recurrence(
    operator: Operator, shape: tuple[int | str, ...], hidden: int, layout: int = 0
) -> ir.Node:
    """One direction; the last axis of x are its inputs."""
    slots = [ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))]
    for name, columns in (("w", shape[-1]), ("r", hidden)):
        assert isinstance(columns, int)
        sizes = (1, GATES[operator.op_type] * hidden, columns)
        tensor = ir.tensor(weights(0, *sizes), name=name)
        slots.append(ir.Value(name=name, shape=ir.Shape(sizes), const_value=tensor))
    ir.Graph([], [], nodes=[], initializers=slots[1:])
    attributes = {"hidden_size": hidden, "layout": layout}
    return ir.node(operator.op_type, slots, attributes, name="n")


@pytest.mark.parametrize("operator", [LSTM(), GRU()])
@pytest.mark.parametrize(("inputs", "k"), [(64, 64), (8, 36), (512, 64)])
def test_a_recurrence_counts_by_its_hidden_size_and_fewer_inputs_lessen_it(
    operator: Operator, inputs: int, k: int
) -> None:
    node = recurrence(operator, (5, 3, inputs), hidden=64)
    rule = operator.dynamic_rule(node)
    assert isinstance(rule, DynamicRule)
    assert matrix_sizes(node, rule) == (k, GATES[operator.op_type] * 64)


def test_a_matmul_counts_by_the_matrix_of_one_element_of_a_batch() -> None:
    for shape, sizes in (((8, 16), (8, 16)), ((5, 8, 16), (8, 16))):
        matmul = node(*shape)
        rule = MatMul().dynamic_rule(matmul)
        assert isinstance(rule, DynamicRule)
        assert matrix_sizes(matmul, rule) == sizes
