from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from onnxq.checking.cross_findings import (
    CrossFindings,
    FloatNode,
    NodeFinding,
    NotCompared,
    NotReached,
    OutputAgreement,
    Unchecked,
    UncheckedNode,
)
from onnxq.checking.differences import Unit
from onnxq.errors import CalibrationError, QConfigError, VerificationError

if TYPE_CHECKING:
    from pathlib import Path

NODE = NodeFinding("c", "QLinearConv", "", "onnxq", 100, 0, 0, Unit.LSB, "")
OUTPUT = OutputAgreement("y", 10, 0, 0, Unit.LSB, "")
GOOD = CrossFindings(
    "hash", 2, (NODE,), (), (FloatNode("s", "Softmax", ""),), (), (OUTPUT,), "", ""
)


def with_node(**changes: object) -> CrossFindings:
    node = dataclasses.replace(NODE, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(GOOD, nodes=(node,))


def test_equal_integers_pass() -> None:
    GOOD.check()
    assert GOOD.differing == 0
    assert GOOD.exact


def test_one_element_that_differs_fails_and_is_named() -> None:
    findings = with_node(differing=1, largest=2)
    with pytest.raises(VerificationError, match=r"QLinearConv 'c': 1 of 100 .* up to 2 LSB"):
        findings.check()


def test_bounds_allow_differences() -> None:
    findings = with_node(differing=3, largest=2)
    findings.check(max_lsb=2)
    findings.check(max_differing=0.03)
    findings.check(max_lsb=2, max_differing=0.03)
    for bounds in ({"max_lsb": 1}, {"max_differing": 0.02}, {"max_lsb": 2, "max_differing": 0}):
        with pytest.raises(VerificationError):
            findings.check(**bounds)


def test_a_shape_that_differs_is_beyond_every_bound() -> None:
    findings = with_node(differing=3, problem="the reference gives int8 (1,)")
    with pytest.raises(VerificationError, match="gives int8"):
        findings.check(max_lsb=100, max_differing=1)


def test_outputs_count_as_nodes_do() -> None:
    output = dataclasses.replace(OUTPUT, differing=1, largest=1)
    with pytest.raises(VerificationError, match="output 'y', end to end"):
        dataclasses.replace(GOOD, outputs=(output,)).check()
    assert dataclasses.replace(GOOD, outputs=(output,)).differing == 1


NOT_CHECKED = UncheckedNode("l", "DynamicQuantizeLSTM", "com.microsoft", NotCompared("no kernel"))


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": ()},
        {"nodes": (), "unchecked": (NOT_CHECKED,)},
        {"unchecked": (NOT_CHECKED,)},
        {"end_to_end": "no Frob"},
        {"instrumented": ("y",)},
        {"outputs": (dataclasses.replace(OUTPUT, problem="it is no tensor"),)},
    ],
    ids=str,
)
def test_what_was_not_compared_is_not_exact(changes: dict[str, object]) -> None:
    findings = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    assert not findings.exact
    assert json.loads(findings.to_json())["exact"] is False
    with pytest.raises(VerificationError):
        findings.check()


def test_no_kernel_is_blamed_for_what_a_float_node_rounds() -> None:
    behind = dataclasses.replace(OUTPUT, differing=5, largest=3, behind="Softmax 's'")
    findings = dataclasses.replace(GOOD, outputs=(behind,))
    with pytest.raises(VerificationError, match=r"No kernel .* 0 of 1 .*Softmax 's'.*lsb 3\)"):
        findings.check()
    node = dataclasses.replace(NODE, differing=1, largest=1)
    with pytest.raises(VerificationError, match="its kernel"):
        dataclasses.replace(findings, nodes=(node,)).check()


def test_a_node_that_no_sample_reached_breaks_nothing_and_proves_nothing() -> None:
    idle = dataclasses.replace(NOT_CHECKED, reason=NotReached())
    findings = dataclasses.replace(GOOD, unchecked=(idle,))
    findings.check()
    assert findings.unreached == (idle,)
    assert not findings.exact
    both = dataclasses.replace(findings, unchecked=(idle, NOT_CHECKED))
    with pytest.raises(VerificationError, match=NOT_CHECKED.reason.words):
        both.check()


def test_where_no_sample_reached_any_integer_node_nothing_was_compared() -> None:
    idle = dataclasses.replace(NOT_CHECKED, reason=NotReached())
    findings = dataclasses.replace(GOOD, nodes=(), unchecked=(idle,))
    with pytest.raises(VerificationError, match=r"No integers were compared\. Give samples"):
        findings.check()
    findings.check(unchecked=Unchecked.ALLOWED)  # as the message advises


@pytest.mark.parametrize("name", ["max_lsb", "max_differing", "max_output_lsb"])
@pytest.mark.parametrize("bound", [-1.0, float("nan")])
def test_bounds_that_nothing_keeps_are_refused(name: str, bound: float) -> None:
    with pytest.raises(QConfigError, match=name):
        GOOD.check(**{name: bound})  # type: ignore[arg-type]


def test_outputs_behind_float_nodes_have_a_bound_of_their_own() -> None:
    output = dataclasses.replace(OUTPUT, differing=5, largest=3, unit=Unit.ULP)
    findings = dataclasses.replace(GOOD, outputs=(output,))
    findings.check(max_output_lsb=3)
    findings.check(max_lsb=0, max_output_lsb=3)
    with pytest.raises(VerificationError, match="by up to 3 ulps"):
        findings.check(max_output_lsb=2)
    with pytest.raises(VerificationError, match="QLinearConv"):
        with_node(differing=1, largest=1).check(max_output_lsb=3)


ROUNDED = dataclasses.replace(
    OUTPUT, differing=5, largest=16, unit=Unit.ULP, behind="Softmax 's'", rounding=16
)


def test_rounding_behind_float_nodes_passes_and_is_not_exact() -> None:
    findings = dataclasses.replace(GOOD, outputs=(ROUNDED,))
    findings.check()
    findings.check(max_lsb=0)
    assert not findings.exact
    with pytest.raises(VerificationError, match="by up to 16 ulps"):
        findings.check(max_output_lsb=15)
    with pytest.raises(VerificationError, match="by up to 17 ulps"):
        dataclasses.replace(findings, outputs=(dataclasses.replace(ROUNDED, largest=17),)).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": (dataclasses.replace(NODE, differing=1, largest=1),)},
        {"first_difference": "c"},
        {"unchecked": (UncheckedNode("l", "X", "", NotCompared("no kernel")),)},
        {"outputs": (dataclasses.replace(ROUNDED, problem="another shape"),)},
    ],
    ids=str,
)
def test_only_where_every_integer_agrees_is_it_rounding(changes: dict[str, object]) -> None:
    findings = dataclasses.replace(GOOD, **{"outputs": (ROUNDED,), **changes})  # type: ignore[arg-type]
    assert not findings.is_rounding(findings.outputs[0])
    with pytest.raises(VerificationError, match="output 'y', end to end"):
        findings.check(unchecked=Unchecked.ALLOWED)


def test_weights_alone_need_no_integer_node_but_equal_outputs() -> None:
    findings = dataclasses.replace(GOOD, nodes=(), weights_alone=True)
    findings.check()
    assert not findings.exact
    assert CrossFindings.from_dict(json.loads(findings.to_json())) == findings
    for changes in ({"outputs": (dataclasses.replace(ROUNDED, largest=17),)}, {"end_to_end": "no"}):
        with pytest.raises(VerificationError, match="end to end"):
            dataclasses.replace(findings, **changes).check()


def test_a_node_that_did_not_run_does_not_keep_a_difference_from_being_rounding() -> None:
    idle = UncheckedNode("l", "X", "", NotReached())
    findings = dataclasses.replace(GOOD, unchecked=(idle,), outputs=(ROUNDED,))
    assert findings.is_rounding(ROUNDED)
    findings.check(unchecked=Unchecked.ALLOWED)
    other = dataclasses.replace(findings, unchecked=(NOT_CHECKED,))
    assert not other.is_rounding(ROUNDED)


def test_without_integer_nodes_none_is_counted() -> None:
    far = dataclasses.replace(ROUNDED, largest=17)
    findings = dataclasses.replace(GOOD, nodes=(), weights_alone=True, outputs=(far,))
    with pytest.raises(VerificationError, match="No kernel is to blame: nothing runs in integers"):
        findings.check()
    floats = dataclasses.replace(GOOD, nodes=())
    with pytest.raises(VerificationError, match="anyway, as objective 'size'"):
        floats.check()


def test_what_was_not_checked_fails_unless_it_is_allowed() -> None:
    nodes = dataclasses.replace(GOOD, unchecked=(NOT_CHECKED,))
    both = dataclasses.replace(nodes, outputs=(), end_to_end="no implementation of Foo")
    for findings in (nodes, both):
        findings.check(unchecked=Unchecked.ALLOWED)
        with pytest.raises(VerificationError, match="was not checked"):
            findings.check()


def test_end_to_end_is_left_out_only_where_a_node_is_why() -> None:
    findings = dataclasses.replace(GOOD, outputs=(), end_to_end="no output 'i'")
    with pytest.raises(VerificationError, match="end to end was not checked"):
        findings.check(unchecked=Unchecked.ALLOWED)


def test_outputs_that_change_when_they_are_watched_always_fail() -> None:
    with pytest.raises(VerificationError, match="'y' changes"):
        dataclasses.replace(GOOD, instrumented=("y",)).check(1000, 1, Unchecked.ALLOWED)


def test_a_model_without_integers_does_not_pass() -> None:
    floats = dataclasses.replace(GOOD, nodes=())
    with pytest.raises(VerificationError, match="runs no node of this model in integers") as raised:
        floats.check()
    assert "--all-integers" in str(raised.value)
    floats.check(unchecked=Unchecked.ALLOWED)  # as the message advises
    far = dataclasses.replace(floats, outputs=(OutputAgreement("y", 9, 9, 99, Unit.ULP, ""),))
    with pytest.raises(VerificationError) as raised:
        far.check(unchecked=Unchecked.ALLOWED)
    assert "meant to be all float" not in str(raised.value)


def test_five_findings_are_named_and_the_rest_counted() -> None:
    node = dataclasses.replace(NODE, differing=1, largest=1)
    with pytest.raises(VerificationError, match="and 3 more"):
        dataclasses.replace(GOOD, nodes=(node,) * 8).check()


def test_json_round_trip(tmp_path: Path) -> None:
    node = UncheckedNode("l", "X", "com.microsoft", NotCompared("no kernel"))
    findings = dataclasses.replace(GOOD, unchecked=(node,), instrumented=("y",))
    path = tmp_path / "f.json"
    path.write_text(findings.to_json())
    assert CrossFindings.load(path) == findings
    assert json.loads(findings.to_json())["differing"] == 0


@pytest.mark.parametrize("text", ["{}", "[1]", "no json", '{"format": "onnxq findings 1"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(CalibrationError):
        CrossFindings.load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read"):
        CrossFindings.load(tmp_path / "none.json")
