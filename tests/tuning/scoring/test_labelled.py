from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec, Samples
from onnxq.samples.images import Images
from onnxq.tuning.scoring import tuning_samples as module
from onnxq.tuning.scoring.tuning_samples import open_labelled

if TYPE_CHECKING:
    from pathlib import Path

X = InputSpec("x", np.dtype(np.float32), ("N", 2))
STATIC = InputSpec("x", np.dtype(np.float32), (2, 2))
ARRAYS = {"x": np.arange(8, dtype=np.float32).reshape(4, 2), "y": np.array([3, 1, 2, 0])}


def test_labels_are_cut_as_the_inputs_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=ARRAYS["x"], y=ARRAYS["y"])
    for source in (ARRAYS, tmp_path / "s.npz"):
        for inputs in ([X], [STATIC]):
            size = 2 if inputs == [STATIC] else None
            batches = list(open_labelled(Samples(source, size), inputs))
            assert np.array_equal(np.concatenate([b["y"] for b in batches]), ARRAYS["y"])
            assert {len(b["x"]) for b in batches} == {len(b["y"]) for b in batches} == {size or 1}


def test_files_of_a_folder_hold_labels_too(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=ARRAYS["x"][number], y=ARRAYS["y"][number])
    assert [int(b["y"][0]) for b in open_labelled(tmp_path, [X])] == [3, 1, 2]


def test_a_further_entry_of_a_tuple_is_the_labels() -> None:
    items = [(ARRAYS["x"][i], int(ARRAYS["y"][i])) for i in range(4)]
    batches = list(open_labelled(Samples(items, 2), [X]))
    assert [b["labels"].tolist() for b in batches] == [[3, 1], [2, 0]]


def test_a_generator_is_kept_and_can_be_gone_through_again() -> None:
    items = ({"x": ARRAYS["x"][i], "y": ARRAYS["y"][i]} for i in range(4))
    samples = open_labelled(items, [X])
    assert [int(b["y"][0]) for b in samples] == [int(b["y"][0]) for b in samples] == [3, 1, 2, 0]


@pytest.mark.parametrize("ignore", [[], ["ids"]])
def test_one_array_is_the_only_inputs_whatever_its_name(tmp_path: Path, ignore: list[str]) -> None:
    arrays = {"pictures": ARRAYS["x"]} | dict.fromkeys(ignore, np.zeros(4))
    np.savez(tmp_path / "s.npz", **arrays)  # type: ignore[arg-type]  # numpy's allow_pickle
    for source in (arrays, tmp_path / "s.npz"):
        with pytest.warns(UserWarning, match="'pictures' is taken for 'x'"):
            batches = list(open_labelled(Samples(source, ignore=ignore), [X]))
        assert np.array_equal(np.concatenate([b["x"] for b in batches]), ARRAYS["x"])


def test_arrays_that_are_ignored_are_no_labels() -> None:
    (first, *_) = open_labelled(Samples({**ARRAYS, "ids": np.zeros(4)}, ignore=["ids"]), [X])
    assert set(first) == {"x", "y"}


def test_labels_of_another_number_are_refused() -> None:
    with pytest.raises(CalibrationError, match="different numbers of samples"):
        open_labelled({**ARRAYS, "y": np.zeros(3)}, [X])


def test_samples_that_do_not_fit_into_memory_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "bytes_to_keep", lambda: 16)
    with pytest.raises(CalibrationError, match=r"may be kept in memory.*Give fewer"):
        open_labelled(ARRAYS, [X])


def test_images_and_safetensors_files_are_samples_of_a_search_too(tmp_path: Path) -> None:
    saving = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "s.safetensors"
    spec = InputSpec("x", np.dtype(np.float32), ("N", 2))
    arrays = {"x": np.ones((3, 2), np.float32), "kinds": np.arange(3)}
    saving.save_file(arrays, path)
    assert [batch["kinds"].tolist() for batch in open_labelled(path, (spec,))] == [[0], [1], [2]]
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4), (255, 0, 0)).save(tmp_path / "a.png")
    planes = InputSpec("x", np.dtype(np.float32), ("N", 3, 4, 4))
    (batch,) = open_labelled(Images(tmp_path), (planes,))
    assert batch["x"].shape == (1, 3, 4, 4)
