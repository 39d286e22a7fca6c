from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.weights import renamed
from onnxq.operator import Precision
from onnxq.times.model_times import NodeTimes, TimeModel, Times
from onnxq.times.time_model import ChangeTime
from onnxq.tuning.evaluation.evaluator import precisions_of
from tests.examples import ALL_INTEGERS
from tests.small_networks import perceptron
from tests.tuning.parts import evaluator_of, rows

if TYPE_CHECKING:
    import onnx_ir as ir

INTEGER = Precision.INT8
CHANGES = {"quantize": ChangeTime(10.0, 0.0), "dequantize": ChangeTime(7.0, 0.0)}
TIMES = Times(
    "somewhere",
    {"x": (1, 3)},
    {
        "conv": NodeTimes({"float": 100.0, "int8": 40.0}, {"int8": 5.0}),
        "relu": NodeTimes({"float": 0.0, "int8": 0.0}),
        "norm": NodeTimes({"float": 30.0}),
    },
    {"quantize": ChangeTime(100.0, 0.5)},
    {"run": 20.0},
    150.0,
)


@pytest.fixture(scope="module")
def network() -> tuple[ir.Model, Times]:
    """A chain of nodes, and times of all of them."""
    evaluator = evaluator_of(perceptron(), rows(perceptron()))
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    names = [str(node.name) for node in model.graph]
    (spec,) = evaluator.subject.inputs
    shape = tuple(n if isinstance(n, int) else 1 for n in spec.shape or ())
    nodes = {name: NodeTimes({"float": 100.0, "int8": 40.0}) for name in names}
    float_ns = 100.0 * len(names) + 5.0
    return model, Times("", {spec.name: shape}, nodes, CHANGES, {"run": 5.0}, float_ns)


@pytest.fixture(scope="module")
def model_and_names(network: tuple[ir.Model, Times]) -> tuple[TimeModel, list[str]]:
    model, times = network
    return TimeModel(times, model), list(times.nodes)


def test_all_in_float_takes_the_sum_of_all(model_and_names: tuple[TimeModel, list[str]]) -> None:
    model, names = model_and_names
    assert model.ns({}) == 100.0 * len(names) + 5.0
    assert model.ratio({}) == 1.0


def test_all_in_integers_converts_at_the_ends_alone(
    model_and_names: tuple[TimeModel, list[str]],
) -> None:
    model, names = model_and_names
    assert model.ns(dict.fromkeys(names, INTEGER)) == 40.0 * len(names) + 5.0 + 17.0


def test_the_order_of_questions_changes_no_answer(network: tuple[ir.Model, Times]) -> None:
    made, times = network
    one, rng = TimeModel(times, made), np.random.default_rng(0)
    choices = (Precision.FLOAT, INTEGER, Precision.INT8_FLOAT_OUTPUT, None)
    asked: dict[str, Precision | None] = dict.fromkeys(times.nodes, Precision.FLOAT)
    for name in rng.choice(list(times.nodes), 40):  # of one node, then many at once
        asked = {**asked, str(name): choices[rng.integers(4)]}
        assert one.ns(asked) == pytest.approx(TimeModel(times, made).ns(asked), rel=1e-12)
    every = dict.fromkeys(times.nodes, INTEGER)
    assert one.ns(every) == pytest.approx(TimeModel(times, made).ns(every), rel=1e-12)


def test_a_float_node_in_between_costs_two_conversions_more(
    model_and_names: tuple[TimeModel, list[str]],
) -> None:
    model, names = model_and_names
    every = dict.fromkeys(names, INTEGER)
    without = {**every, names[1]: Precision.FLOAT}
    assert model.ns(without) - model.ns(every) == 60.0 + 17.0


def test_what_another_node_computes_takes_no_time_and_no_conversion(
    model_and_names: tuple[TimeModel, list[str]],
) -> None:
    model, names = model_and_names
    every = {**dict.fromkeys(names, INTEGER), names[1]: None}
    assert model.ns(every) == 40.0 * (len(names) - 1) + 5.0 + 17.0


def test_a_form_that_was_not_measured_takes_float_with_conversions(
    model_and_names: tuple[TimeModel, list[str]],
) -> None:
    model, names = model_and_names
    assert model.ns({names[0]: Precision.FLOAT_BETWEEN_QDQ}) == model.ns({})
    assert model.ns({names[0]: Precision.DYNAMIC_INT8}) == model.ns({})


def test_nodes_in_bodies_take_the_time_of_their_form(network: tuple[ir.Model, Times]) -> None:
    model, times = network
    inner = {
        "one": NodeTimes({"float": 50.0, "dynamic_int8": 20.0}, {"dynamic_int8": 3.0}),
        "other": NodeTimes({"float": 9.0}),
        "within": NodeTimes({"float": 4.0, "dynamic_int8": 0.0}),
    }
    found = TimeModel(replace(times, nodes={**times.nodes, **inner}), model)
    floats = TimeModel(times, model).ns({})
    assert found.ns({}) == floats + 50.0 + 9.0 + 4.0
    assert found.ns(dict.fromkeys(inner, Precision.DYNAMIC_INT8)) == floats + 20.0 + 3.0 + 9.0
    assert found.ns({"within": None}) == floats + 50.0 + 9.0


def test_forms_of_a_plan_say_what_is_inside_of_another_node() -> None:
    precisions = precisions_of(evaluator_of().quantized(ALL_INTEGERS).plan)
    assert precisions["conv1"] is INTEGER
    assert precisions["relu1"] is None


def test_float_behind_integers_takes_the_time_that_it_had_there(
    network: tuple[ir.Model, Times],
) -> None:
    model, times = network
    first, second, *_ = times.nodes
    known = replace(times.nodes[second], behind={"int8": 60.0})
    without = TimeModel(times, model)
    with_it = TimeModel(replace(times, nodes={**times.nodes, second: known}), model)
    assert without.ns({first: INTEGER}) - with_it.ns({first: INTEGER}) == 40.0
    assert without.ns({}) == with_it.ns({})


def test_a_model_of_times_travels_to_other_processes(network: tuple[ir.Model, Times]) -> None:
    model, times = network
    ratio = pickle.loads(pickle.dumps(TimeModel(times, model).ratio))
    assert ratio({}) == 1.0


def test_it_travels_where_tensors_are_computed_when_read(network: tuple[ir.Model, Times]) -> None:
    """Tensors that two models share under different names are such."""
    model, times = network[0].clone(), network[1]
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = renamed(value.const_value, value.name or "")
    here = TimeModel(times, model)
    there = pickle.loads(pickle.dumps(here.ratio))
    for precision in (INTEGER, Precision.DYNAMIC_INT8, Precision.FLOAT):
        precisions = dict.fromkeys(times.nodes, precision)
        assert there(precisions) == here.ratio(precisions)


def test_times_survive_their_file_form() -> None:
    assert Times.from_dict(TIMES.to_dict()) == TIMES


def test_a_group_has_the_times_of_its_nodes_in_every_form_that_was_measured() -> None:
    found = TIMES.by_precision(("conv", "relu", "norm"))
    assert found[Precision.FLOAT] == 130.0
    assert found[Precision.INT8] == 70.0  # a norm without an integer form stays as it is
    assert Precision.DYNAMIC_INT8 not in found


def test_stored_and_wide_nodes_run_the_float_kernel() -> None:
    assert (
        TIMES.of(("conv",), Precision.WEIGHT_ONLY)
        == TIMES.of(("conv",), Precision.FLOAT_BETWEEN_QDQ)
        == 100.0
    )


def test_nodes_that_were_not_measured_have_no_time() -> None:
    assert TIMES.of(("other",), Precision.FLOAT) is None


def test_a_change_takes_its_own_time_and_that_of_its_elements() -> None:
    assert TIMES.changes["quantize"].ns(1000) == 600.0
