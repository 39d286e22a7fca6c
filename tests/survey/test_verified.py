from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq.checking.findings import Findings
from onnxq.errors import OutputError, VerificationError
from onnxq.jobs.processes import Processes
from scripts._corpus.blobs import detector, pictures
from tests.survey.pair import BATCH, pair

if TYPE_CHECKING:
    from pathlib import Path


def test_findings_write_their_report_of_samples_that_come_once(tmp_path: Path) -> None:
    made = pair()
    findings = onnxq.verify(made.source, made.target, iter([BATCH, BATCH]))
    findings.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "the float model → the quantized model" in text
    assert findings.float_hash in text
    assert findings == onnxq.verify(made.source, made.target, [BATCH, BATCH])
    with pytest.raises(OutputError):
        findings.report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_findings_that_were_loaded_say_how_to_get_a_report(tmp_path: Path) -> None:
    made = pair()
    findings = onnxq.verify(made.source, made.target, [BATCH])
    lost = Findings.from_dict(findings.to_dict())
    with pytest.raises(VerificationError, match="onnxq report FLOAT QUANTIZED SAMPLES"):
        lost.report(tmp_path / "report.html")


def test_boxes_are_compared_whoever_runs_the_models() -> None:
    source, x = detector(), {"x": pictures(32)}
    made = onnxq.quantize(source, x, target="x86-vnni", check=onnxq.Check.NONE)
    here = onnxq.verify(source, made, x)
    (boxes,) = here.answers
    assert (boxes.kind, boxes.figure) == ("boxes", "F1")
    assert boxes.count > 0
    assert 0 < boxes.value <= 1
    with Processes(2, ["onnxq.checking.verify"]) as workers:
        assert onnxq.verify(source, made, x, executor=workers) == here
    assert Findings.from_dict(here.to_dict()) == here
