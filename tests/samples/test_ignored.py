from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import onnxq
from onnxq.errors import CalibrationError
from onnxq.samples import Samples
from onnxq.samples.ignored import check_ignored
from tests.examples import network

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

X: Array = np.ones((4, 2), np.float32)
LABELS: Array = np.zeros(4)
ARRAYS = {"x": X, "labels": LABELS}


def sources(folder: Path) -> list[object]:
    """The arrays as each kind of source whose names are known beforehand."""
    np.savez(folder / "a.npz", x=X, labels=LABELS)
    (folder / "files").mkdir()
    np.savez(folder / "files" / "0.npz", x=X)
    np.savez(folder / "files" / "1.npz", x=X, labels=LABELS)
    return [ARRAYS, folder / "a.npz", str(folder / "a.npz"), folder / "files"]


def test_a_name_that_no_array_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    for source in sources(tmp_path):
        check_ignored(Samples(source, ignore=["labels"]))
        said = r"no array 'lables' is there to ignore; there are x, labels\. Did you mean 'labels'"
        with pytest.raises(CalibrationError, match=said):
            check_ignored(Samples(source, ignore=["labels", "lables"]))


def test_of_two_sources_either_may_have_it() -> None:
    only = Samples({"x": X}, ignore=["labels"])
    check_ignored(only, Samples.of(ARRAYS, only))
    check_ignored(Samples.of(ARRAYS, only), None)
    with pytest.raises(CalibrationError, match="there are x"):
        check_ignored(only, only)


def test_an_array_alone_has_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    for source in (X, tmp_path / "x.npy"):
        with pytest.raises(CalibrationError, match="there are none"):
            check_ignored(Samples(source, ignore=["labels"]))


def test_what_shows_its_names_as_it_is_read_is_taken_to_have_them() -> None:
    unknown = Samples(iter([ARRAYS]), ignore=["labels"])
    check_ignored(unknown)
    check_ignored(Samples({"x": X}), unknown)


def test_calls_refuse_it_before_a_model_runs() -> None:
    model = network()
    samples: Any = {"x": np.ones((4, 3, 8, 8), np.float32)}
    for call in (
        lambda: onnxq.quantize(model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.quantize(
            model, onnxq.Samples(samples, ignore=["label"]), check=onnxq.Check(hold_apart=2)
        ),
        lambda: onnxq.calibrate(onnxq.prepare(model), onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.tune(model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.verify(model, model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.cross_check(model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.predict(model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.bench(model, model, onnxq.Samples(samples, ignore=["label"])),
        lambda: onnxq.quantize_dynamic(model, check=onnxq.Samples(samples, ignore=["label"])),
    ):
        with pytest.raises(CalibrationError, match="no array 'label' is there to ignore"):
            call()
