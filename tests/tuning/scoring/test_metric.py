from __future__ import annotations

import math
import pickle
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.checking.check import Check
from onnxq.errors import CalibrationError, QConfigError
from onnxq.metrics import Boxes, Masks
from onnxq.samples import Samples
from onnxq.tuning.evaluation.evaluator import baseline_of
from onnxq.tuning.scoring.metric import SQNR, TOP1, MetricError, MetricFile, as_metric
from onnxq.tuning.scoring.subject import Subject
from onnxq.tuning.scoring.tuning_samples import TuningSamples, open_tuning_samples
from tests.examples import network
from tests.tuning.parts import labelled

if TYPE_CHECKING:
    from pathlib import Path

ACCURACY = """
import numpy as np

def accuracy(run, samples):
    right = [run(batch)["y"].argmax(1) == batch["labels"] for batch in samples]
    return np.concatenate(right).mean()

def whole(run, samples):
    return float((run({"x": samples["x"]})["y"].argmax(1) == samples["labels"]).mean())

def careless(run, samples):
    return np.mean([run({"x": b.pop("x")})["y"].argmax(1) == b.pop("labels") for b in samples])

def broken(run, samples):
    batch = next(iter(samples))
    return batch["label"]

def several(run, samples):
    return np.zeros(3)

def undefined(run, samples):
    return float("nan")

def wrong_input(run, samples):
    return run({"z": samples["x"]})["y"].mean()

def leaving(run, samples):
    raise SystemExit(5)

def scaling(run, samples):
    for batch in samples:
        batch["x"] *= 0.5
    return 1.0

def softmax(run, samples):
    right = []
    for batch in samples:
        y = run(batch)["y"]
        np.exp(y, out=y)
        y /= y.sum(1, keepdims=True)
        right.append(y.argmax(1) == batch["labels"])
    return np.concatenate(right).mean()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.py"
    path.write_text(ACCURACY)
    return path


@pytest.fixture(scope="module", params=["N", 1, 3])
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(network(batch=request.param))


def search(subject: Subject) -> TuningSamples:
    return open_tuning_samples(Samples(labelled()), Check(hold_apart=2), subject.inputs)[0]


def value(subject: Subject, metric: str) -> float:
    return baseline_of(subject, search(subject), as_metric(metric)).metric


def test_metrics_that_are_built_in_have_a_value_for_the_float_model(subject: Subject) -> None:
    assert value(subject, "sqnr") == math.inf
    assert value(subject, "top1") == 1.0


def test_a_function_of_a_file_sees_batches_with_labels_or_whole_arrays(
    subject: Subject, file: Path
) -> None:
    samples = search(subject)
    with subject.open_float() as session:
        run = subject.float_run(session)
        y = np.concatenate([run(batch)["y"] for batch in samples])
    wanted = float((y.argmax(1) == samples["labels"]).mean())
    for name in ("accuracy", "whole", "careless", "careless"):
        assert value(subject, f"{file}:{name}") == wanted


def test_a_function_of_a_file_pickles_by_its_source(file: Path) -> None:
    metric = as_metric(f"{file}:accuracy")
    file.unlink()
    again = pickle.loads(pickle.dumps(metric))
    assert again == metric
    assert again.function is not None
    assert again.fingerprint


def test_an_error_of_the_function_names_its_line(subject: Subject, file: Path) -> None:
    with pytest.raises(MetricError, match=r"metrics\.py, line 16: KeyError: 'label'") as raised:
        value(subject, f"{file}:broken")
    assert "hold 'x', 'labels'; the model gives 'y'. Did you mean 'labels'?" in str(raised.value)


def test_a_function_that_ends_the_process_is_an_error(subject: Subject, file: Path) -> None:
    with pytest.raises(MetricError, match=r"metrics\.py, line 28: SystemExit: 5"):
        value(subject, f"{file}:leaving")


def test_an_error_of_the_model_keeps_its_own_words_behind_the_line(
    subject: Subject, file: Path
) -> None:
    with pytest.raises(
        CalibrationError, match=r"metrics\.py, line 25: .*got 'z'; the model takes 'x'"
    ):
        value(subject, f"{file}:wrong_input")


def test_samples_cannot_be_changed(subject: Subject, file: Path) -> None:
    with pytest.raises(MetricError, match=r"line 32: ValueError: .*read-only.*copied"):
        value(subject, f"{file}:scaling")


def test_outputs_may_be_changed(subject: Subject, file: Path) -> None:
    samples = search(subject)
    baseline = baseline_of(subject, samples, as_metric(f"{file}:softmax"))
    with subject.open_float() as session:
        run = subject.float_run(session)
        for batch, kept in zip(samples, baseline.beside(), strict=True):
            assert np.array_equal(run(batch)["y"], kept["y"])


@pytest.mark.parametrize(
    ("name", "said"),
    [("several", "wanted one number"), ("undefined", "gives nan; wanted a finite")],
)
def test_only_a_finite_number_is_a_metric(
    subject: Subject, file: Path, name: str, said: str
) -> None:
    with pytest.raises(MetricError, match=said):
        value(subject, f"{file}:{name}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tpo1",
            r"'tpo1' is not known; wanted sqnr, top1, .*FILE.py:function\. Did you mean 'top1'",
        ),
        ("nowhere.py:f", "file 'nowhere.py'.*Check the path"),
        (3, "metric is an int"),
    ],
)
def test_what_is_no_metric_is_refused(text: object, said: str) -> None:
    with pytest.raises(QConfigError, match=said):
        as_metric(text)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:\n", "line 1: invalid syntax"),
        ("x = 1\nimport no_such_module\n", "line 2: ModuleNotFoundError"),
        ("def g(run, samples): ...\n", "has no function 'f'; it has g"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_its_line(
    tmp_path: Path, source: str, said: str
) -> None:
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(QConfigError, match=said):
        as_metric(f"{tmp_path / 'm.py'}:f")


def test_none_is_sqnr_and_names_are_found() -> None:
    assert as_metric(None) is SQNR
    assert as_metric("top1") is TOP1
    assert as_metric(SQNR) is SQNR


def test_a_python_function_is_a_metric() -> None:
    assert as_metric(lambda _run, _samples: 1.0).float_value is None


def test_functions_of_one_name_have_fingerprints_of_their_own() -> None:
    def made(run: object, samples: object) -> float:
        del run, samples
        return 1.0

    first = as_metric(made)

    def made(run: object, samples: object) -> float:  # type: ignore[no-redef]  # edited since
        del run, samples
        return 2.0

    second = as_metric(made)
    assert first.name == second.name
    assert len({first.fingerprint, second.fingerprint, as_metric(len).fingerprint}) == 3
    assert as_metric(len).fingerprint == ""


@pytest.fixture
def file_with_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A metric that imports a module beside it, at once and when it is called."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_metric.py").write_text("import beside_that\nVALUE = 0.5\n")
    (tmp_path / "beside_that.py").write_text("")
    path = tmp_path / "metric.py"
    path.write_text(
        "from beside_the_metric import VALUE\n"
        "def value(run, samples):\n"
        "    import beside_the_metric\n"
        "    return VALUE + beside_the_metric.VALUE\n"
    )
    return path


def test_modules_beside_the_file_can_be_imported(file_with_imports: Path) -> None:
    assert MetricFile.of(f"{file_with_imports}:value", ())(None, None) == 1.0


@pytest.mark.parametrize("changed", ["metric.py", "beside_the_metric.py", "beside_that.py"])
def test_a_change_of_what_is_imported_is_another_version(
    file_with_imports: Path, changed: str
) -> None:
    metric = MetricFile.of(f"{file_with_imports}:value", ())
    before = metric.fingerprint
    with (file_with_imports.parent / changed).open("a") as opened:
        opened.write("# changed\n")
    metric = MetricFile.of(f"{file_with_imports}:value", ())
    assert metric.fingerprint != before


def test_installed_modules_come_before_those_beside(file_with_imports: Path) -> None:
    (file_with_imports.parent / "json.py").write_text("raise AssertionError\n")
    file_with_imports.write_text("import json\nvalue = json.dumps\n")
    assert MetricFile.of(f"{file_with_imports}:value", ())([1]) == "[1]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("boxs:format=xyxy", r"'boxs:format=xyxy' is not known; .*Did you mean 'boxes'"),
        ("boxes:fromat=xyxy", r"'fromat=xyxy' is no option; .*Did you mean 'format'"),
        ("boxes:min_score=much", "min_score is 'much'; wanted a number"),
        ("masks:axis=2", "axis is 2; wanted None, 1, 3"),
    ],
)
def test_an_option_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(QConfigError, match=said):
        as_metric(text)


def test_options_of_a_metric_stand_behind_its_name() -> None:
    given = as_metric("boxes:format=xyxy,min_score=0.4,axis=1")
    assert given.made is not None
    assert given.made() == Boxes(format="xyxy", min_score=0.4, axis=1)
    assert as_metric(Boxes(iou=0.7)).made is not None
    assert as_metric("words").float_value == 0.0


def test_the_layout_is_told_once_by_the_float_model() -> None:
    x = {"mask": np.where(np.arange(64).reshape(1, 1, 8, 8) > 9, 3.0, -3.0)}
    told, words = as_metric("masks").with_layout_of([x])
    assert (
        words
        == "'mask' (1, 1, 8, 8): marked above 0, 1 channels along axis 1; the float model finds 54"
    )
    assert told.made is not None
    assert told.made() == Masks("mask", 1, 0.0)
    with pytest.raises(CalibrationError, match=r"float model finds nothing .*above 9"):
        as_metric("masks:threshold=9").with_layout_of([x])
