from __future__ import annotations

from onnxq.qconfig import Choice, QConfigMapping, default_qconfig_mapping
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from tests.examples import images, network

UNMEASURED = "no times were measured for arm64: precisions follow the static rules"


def planned(target: str, mapping: QConfigMapping | None = None) -> Plan:
    prepared = prepare(network(), mapping, target)
    return plan(prepared, calibrate(prepared, {"x": images(4)}))


def said(made: Plan) -> list[str]:
    return [note for note in made.notes if "no times were measured" in note]


def test_a_target_without_a_table_of_times_says_so_once() -> None:
    (note,) = said(planned("arm64"))
    assert note.startswith(UNMEASURED)
    assert said(planned("x86-vnni")) == said(planned("portable")) == []


def test_nothing_is_said_where_no_precision_is_chosen() -> None:
    first = planned("arm64")
    assert said(planned("arm64", first.qconfig)) == []
    everything = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    assert said(planned("arm64", everything)) == []
