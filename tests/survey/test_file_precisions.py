from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.checking.execution import execution
from onnxq.checking.summary import summarize_precisions
from onnxq.operator import Float, Precision
from onnxq.operator.reasons import LeftByRequest
from onnxq.survey.file_precisions import (
    SEARCHED,
    counted_by_file,
    planned,
    precisions_in,
    searched,
    shown_by_file,
)
from tests.examples import as_ir, model
from tests.survey.pair import pair


@pytest.mark.parametrize("precision", ["qdq", "qoperator"])
def test_the_file_shows_the_forms_of_its_plan(precision: str) -> None:
    made = pair(precision)
    shown = precisions_in(shown_by_file(made.sides().source, made.target))
    wanted = precisions_in(planned(made.plan))
    differing = {name for name in wanted if shown[name] is not wanted[name]}
    assert not differing


def test_reasons_are_the_plans_where_there_is_one() -> None:
    choices = planned(pair().plan)
    inside = [choice for choice in choices.values() if choice.precision is None]
    assert all(choice.reason for choice in choices.values())
    assert inside
    assert all(choice.reason.startswith("computed with ") for choice in inside)


def test_what_a_search_leaves_in_float_is_not_said_to_be_the_users_wish() -> None:
    made = pair().plan
    name = next(name for name, d in made.decisions.items() if not isinstance(d, Float))
    left = dataclasses.replace(made, decisions={**made.decisions, name: Float(LeftByRequest())})
    assert searched(left)[name].reason == SEARCHED
    assert planned(left)[name].reason == LeftByRequest().words


def test_a_weight_that_is_integers_between_floats_is_dynamic() -> None:
    w = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    source = as_ir(
        model([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {"w": w}, {"x": ["N", 64]})
    )
    target = onnxq.quantize_dynamic(source, objective="size")
    assert shown_by_file(source, target)["m"].precision is Precision.DYNAMIC_INT8


@pytest.mark.parametrize("precision", ["qdq", "qoperator"])
def test_nodes_are_counted_as_the_verdict_counts_them(precision: str) -> None:
    made = pair(precision)
    source, plan, runs = made.sides().source, made.plan, execution(made.target)
    said = summarize_precisions(source, plan.decisions, plan.precisions, plan.dtypes).node_counts(
        runs
    )
    assert counted_by_file(source, shown_by_file(source, made.target), runs) == said
    assert said.integers > 0
