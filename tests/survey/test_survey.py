from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from onnxq.checking.verify import findings_of, open_for
from onnxq.errors import UnsupportedError
from onnxq.samples import Samples
from onnxq.survey import survey as module
from onnxq.survey.heading import ReportSubject
from onnxq.survey.survey import BesideFiles, survey
from tests.survey.pair import BATCH, pair

if TYPE_CHECKING:
    import pytest

    from onnxq.page.content import Page

SUBJECT = ReportSubject("m", "q", (2, 1))


def surveyed(beside: BesideFiles) -> Page:
    sides = pair().sides()
    findings = findings_of(sides, open_for(sides, Samples([BATCH])), {})
    return survey(SUBJECT, sides, findings, [BATCH], {}, beside)


def test_parts_name_each_other_by_their_places() -> None:
    page = surveyed(BesideFiles(pair().plan))
    assert {t.name for t in page.tensors} >= {"x", "r1", "y"}
    for place, node in enumerate(page.nodes):
        makers = [page.tensors[t].node for t in node.tensors]
        inside = [
            m == place or page.nodes[m].precision == "inside" for m in makers if m is not None
        ]
        assert node.op_type == "output" or all(inside)
        assert all(page.weights[w].node == place for w in node.weights)
    conv, relu = page.nodes[1:3]
    assert (conv.op_type, relu.op_type, relu.precision) == ("Conv", "Relu", "inside")
    assert conv.tensors == relu.tensors != ()
    assert any(node.weights for node in page.nodes)
    assert any(t.local_db is not None for t in page.tensors)
    assert page.missing == ()


def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise UnsupportedError("operator 'Foo' is not known here")

    monkeypatch.setattr(module, "layers_on_machines", refused)
    missing = {fact.name: fact.value for fact in surveyed(BesideFiles()).missing}
    assert missing["machines"] == "Not measured: operator 'Foo' is not known here"
    assert "--save-plan" in missing["decisions"]


def test_pages_are_values() -> None:
    page = surveyed(BesideFiles(pair().plan))
    assert dataclasses.replace(page) == page
