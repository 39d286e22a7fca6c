from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.exactness import Counted, measure, rows_of
from benchmarks.harness.table import Missed, Row
from benchmarks.parts import trials
from onnxq import catalog
from onnxq.operator import Call, Float, OperatorLimit, Rule
from onnxq.operators.relu import Relu
from tests.this_machine import adds_exactly

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.operator import Array


@pytest.fixture(autouse=True)
def few_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting of scales and zero points of six: each is a session per case."""
    monkeypatch.setattr(trials, "QPARAMS", trials.QPARAMS[:1])


@adds_exactly
def test_a_float_operator_has_a_row_per_pair_of_types() -> None:
    conv = catalog.find("Conv")
    assert conv is not None
    rows = rows_of(conv, "", 1000)
    assert [row.types for row in rows] == ["u8u8", "u8s8", "s8s8"]
    assert all(row.good and row.elements >= 1000 and not row.mismatches for row in rows)


@adds_exactly
def test_an_operator_on_integers_runs_in_its_domain() -> None:
    conv = catalog.find_integer("QLinearConv", "com.microsoft")
    assert conv is not None
    rows = rows_of(conv, "com.microsoft", 1000)
    assert {row.types for row in rows} >= {"u8u8", "u8s8", "s8s8"}
    assert all(row.good and row.domain == "com.microsoft" for row in rows)


class FloatRelu(Relu):
    """Every case stays in float."""

    def rule(self, node: ir.Node) -> Rule | Float:  # noqa: ARG002  # the contract gives it
        return Float(OperatorLimit("it is a test"))


def test_an_operator_without_any_case_in_integers_is_a_broken_row() -> None:
    (row,) = rows_of(FloatRelu(), "", 1000)
    assert not row.good
    assert "none of its cases" in row.why


def test_exact_cases_are_not_excused_by_cases_that_round_in_float() -> None:
    resize = catalog.find("Resize")
    assert resize is not None
    rows = {(row.types, row.bound) for row in rows_of(resize, "", 100)}
    assert {("u8", "exact"), ("u8", "1 step")} <= rows


class WrongRelu(Relu):
    """One integer of the result is off by one LSB."""

    def kernel(self, call: Call) -> tuple[Array, ...]:
        (y,) = super().kernel(call)
        wrong = np.array(y, np.int8 if y.dtype == np.int8 else np.uint8)
        wrong.reshape(-1)[:1] ^= 1
        return (wrong,)


def test_one_wrong_integer_breaks_the_bound() -> None:
    row = rows_of(WrongRelu(), "", 1000)[0]
    assert not row.good
    assert (row.largest, row.mismatches) == (1.0, row.beyond), row.first
    assert "elements beyond the bound; first in" in row.why


def test_a_float_operator_may_be_a_step_off_in_one_of_ten_thousand() -> None:
    row = Counted("Tanh", "", "u8", 10_000, "1 step", 20_000, 2, 1.0, beyond=2)
    assert row.good
    row.beyond = 3
    assert not row.good
    row.beyond, row.largest = 1, 2.0
    assert not row.good


def test_too_few_elements_are_not_enough() -> None:
    assert not Counted("Relu", "", "u8", 10, elements=9).good


def test_an_operator_has_a_row_per_pair_of_types_and_misses_nothing() -> None:
    found = list(measure.measure(elements=100, operators=("Sigmoid",)))
    assert [row.cells[:3] for row in found if isinstance(row, Row)] == [
        ("Sigmoid", "ai.onnx", "u8"),
        ("Sigmoid", "ai.onnx", "s8"),
    ]
    assert not any(isinstance(each, Missed) for each in found)
