from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxq.dtypes import INT4, INT8, QDType
from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, NoopObserver
from onnxq.operator import DynamicForm, DynamicRule, DynamicWeight, Float
from onnxq.stages.dynamic_decision import Objective
from onnxq.stages.dynamic_forms import Slower, choose_form, stored_type
from onnxq.targets import DynamicGain, Target
from tests.dynamic_models import UNMEASURED
from tests.examples import weights

INT, B, S, H = DynamicForm.INTEGER, DynamicForm.BLOCKS, DynamicForm.STORED, DynamicForm.HALF
RULE = DynamicRule((DynamicWeight(1, 1),), (INT, B, S, H))


def node(*shape: int, rows: int | str = 4) -> ir.Node:
    tensor = ir.tensor(weights(0, *shape), name="w")
    w = ir.Value(name="w", shape=ir.Shape(shape), const_value=tensor)
    x = ir.Value(name="x", shape=ir.Shape([rows, shape[0]]))
    return ir.node("MatMul", [x, w], name="n")


def with_gains(**ratios: float) -> Target:
    """k = 8, n = 16, m = 4."""
    gains = tuple(DynamicGain("MatMul", f, 8, 8, 16, 4, ratio) for f, ratio in ratios.items())
    return Target("mine", "", 127, dynamic_gains=gains)


def choose(
    named: DynamicForm | None = None,
    dtype: QDType | None = INT8,
    target: Target | None = None,
    objective: Objective = Objective.SPEED,
    rule: DynamicRule = RULE,
    shape: tuple[int, ...] = (8, 16),
) -> DynamicForm | Float:
    return choose_form(node(*shape), rule, named, dtype, target or UNMEASURED, objective)


def test_nothing_measured_gives_the_usual_form() -> None:
    assert choose(target=with_gains()) is INT


def test_the_fastest_form_is_chosen() -> None:
    assert choose(target=with_gains(integer=1.2, blocks=2.0, stored=1.0)) is B
    assert choose(target=with_gains(integer=1.2, blocks=0.5)) is INT


def test_objective_size_takes_the_fastest_of_the_slow_ones() -> None:
    slow = with_gains(integer=0.2, blocks=0.5, stored=0.4)
    assert choose(target=slow, objective=Objective.SIZE) is B
    verdict = choose(target=slow)
    assert isinstance(verdict, Slower)
    assert "0.50" in verdict.reason


def test_as_fast_as_float_is_fast_enough() -> None:
    assert choose(target=with_gains(stored=1.0)) is S


def test_narrow_codes_have_no_integer_products() -> None:
    assert choose(dtype=INT4, target=with_gains()) is B


def test_float16_is_half() -> None:
    assert choose(dtype=None) is H
    assert choose(H) is H


def test_a_form_that_the_operator_lacks_leaves_the_node_in_float() -> None:
    rule = DynamicRule(RULE.weights, (S,))
    verdict = choose(INT, rule=rule)
    assert isinstance(verdict, Float)
    assert verdict.reason == "it has no form 'integer'; it has 'stored'"


def test_blocks_need_a_matrix() -> None:
    verdict = choose(B, shape=(2, 8, 16))
    assert isinstance(verdict, Float)
    assert "is no matrix" in verdict.reason
    no_channels = DynamicRule((DynamicWeight(1, None),), (B,))
    assert isinstance(choose(rule=no_channels), Float)


@pytest.mark.parametrize(("form", "dtype"), [(INT, INT4), (B, None), (INT, None)])
def test_forms_and_types_that_exclude_each_other_are_refused(
    form: DynamicForm, dtype: QDType | None
) -> None:
    with pytest.raises(QConfigError, match=f"'n': the qconfig names form '{form.value}' and"):
        choose(form, dtype)


def test_the_type_of_the_codes_is_the_observers() -> None:
    assert stored_type([NarrowRangeObserver.with_args()]) == INT8
    assert stored_type([NarrowRangeObserver.with_args(dtype="int4", quant_max=7)]) == INT4
    assert stored_type([NoopObserver.with_args(dtype="float16")]) is None


def test_weights_of_one_node_have_one_type() -> None:
    both = [NarrowRangeObserver.with_args(), NoopObserver.with_args(dtype="float16")]
    verdict = stored_type(both)
    assert isinstance(verdict, Float)
    assert "different types: float16, int8" in verdict.reason


def test_wide_codes_are_refused() -> None:
    with pytest.raises(QConfigError, match="8 bits or fewer"):
        stored_type([MinMaxObserver.with_args(dtype="int16")])
