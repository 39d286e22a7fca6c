from __future__ import annotations

import dataclasses
import math

from onnxq.checking.findings import Execution, Findings, OutputFinding, TensorFinding
from onnxq.checking.summary import NodeCounts
from onnxq.survey.heading import NO_BOUNDS, Bounds, ReportSubject, heading
from onnxq.times.attribution import PairedNodeTimes

NODES = NodeCounts(5, 1, 2)
SUBJECT = ReportSubject("m.onnx", "q.onnx", (1000, 250))


def findings(db: float, top1: float | None = None) -> Findings:
    return Findings(
        "f" * 32,
        "q" * 32,
        4,
        (TensorFinding("t", "uint8", 0.1, 8, 25.0, 1.0, 3.0, 0.0),),
        (OutputFinding("y", 8, db, 1.0, 0.1, None, top1),),
        (),
        Execution({"QLinearConv": 3}, {"Softmax": 1}, {}, ()),
    )


def times(speed: float) -> PairedNodeTimes:
    return PairedNodeTimes({}, {}, (200.0, 100.0), (speed, 0.95 * speed, 1.1 * speed))


def test_the_verdict_is_one_sentence_with_error_size_and_time() -> None:
    head = heading(SUBJECT, findings(40.0, 0.99), NODES, NO_BOUNDS, times(2.0))
    assert head.verdict == (
        "1.00% away from float, the same class in 99.0% of the samples, 25% of the size, "
        "2.00 (1.90 to 2.20) times as fast here."
    )
    assert head.warning == ""


def test_a_slower_model_is_called_so() -> None:
    assert (
        "2.00 (1.82 to 2.11) times as long a run here"
        in heading(SUBJECT, findings(40.0), NODES, NO_BOUNDS, times(0.5)).verdict
    )


def test_outputs_of_integers_are_neither_the_worst_nor_bounded() -> None:
    found = findings(40.0)
    classes = dataclasses.replace(found.outputs[0], name="i", sqnr_db=math.nan, agreement=0.5)
    low = dataclasses.replace(classes, name="j", sqnr_db=-20.0)
    head = heading(
        SUBJECT,
        dataclasses.replace(found, outputs=(*found.outputs, classes, low)),
        NODES,
        Bounds(min_sqnr_db=20.0),
        None,
    )
    assert head.verdict.startswith("1.00% away from float")
    assert [bound.is_kept for bound in head.bounds] == [True]


def test_a_low_output_is_warned_of() -> None:
    assert "below 15" in heading(SUBJECT, findings(5.0), NODES, NO_BOUNDS, None).warning
    assert "bit for bit" in heading(SUBJECT, findings(math.inf), NODES, NO_BOUNDS, None).verdict


def test_bounds_are_said_with_what_was_got() -> None:
    kept, broken = heading(SUBJECT, findings(40.0), NODES, Bounds(20.0, 2.0), None).bounds
    assert kept.is_kept
    assert "worst 25.0 dB" in kept.words
    assert not broken.is_kept
    assert "largest 3.0" in broken.words


def test_hashes_and_versions_are_there() -> None:
    origin = {
        f.name: f.value for f in heading(SUBJECT, findings(40.0), NODES, NO_BOUNDS, None).origin
    }
    assert origin["float model"] == "f" * 32
    assert {"onnxq", "onnxruntime", "Python", "machine", "threads", "date"} <= set(origin)
    assert "samples" not in origin  # nobody counted them
    counted = dataclasses.replace(SUBJECT, samples=400)
    (samples,) = [
        fact.value
        for fact in heading(counted, findings(40.0), NODES, NO_BOUNDS, None).origin
        if fact.name == "samples"
    ]
    assert samples == "400"


def test_nodes_are_those_of_the_float_model() -> None:
    figures = {f.name: f for f in heading(SUBJECT, findings(40.0), NODES, NO_BOUNDS, None).figures}
    assert (figures["nodes in integers"].value, figures["nodes in integers"].beside) == (
        "5",
        "of 8",
    )
