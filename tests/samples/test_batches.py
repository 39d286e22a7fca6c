from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec, Samples, open_samples
from onnxq.samples import batches as module

if TYPE_CHECKING:
    from pathlib import Path

INPUT = InputSpec("x", np.dtype(np.float32), ("batch", 3))
ROWS = np.arange(33, dtype=np.float32).reshape(11, 3)


def source(kind: str, folder: Path) -> object:
    """The eleven rows in another form."""
    match kind:
        case "npy":
            np.save(folder / "x.npy", ROWS)
            return folder / "x.npy"
        case "fortran":
            np.save(folder / "x.npy", np.asfortranarray(ROWS))
            return folder / "x.npy"
        case "npz":
            np.savez(folder / "x.npz", x=ROWS)
            return folder / "x.npz"
        case "folder":
            (folder / "many").mkdir()
            for number, row in enumerate(ROWS):
                np.save(folder / "many" / f"{number:02}.npy", row)
            return folder / "many"
        case "generator":
            return ({"x": row[None]} for row in ROWS)
    return {"x": ROWS}


@pytest.mark.parametrize("kind", ["npy", "fortran", "npz", "folder", "generator", "arrays"])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_parts_are_pickled_and_hold_all_batches_in_order(
    kind: str, size: int, tmp_path: Path
) -> None:
    samples = open_samples(source(kind, tmp_path), [INPUT])
    parts = [pickle.loads(pickle.dumps(part)) for part in samples.parts(size)]
    assert [part.count for part in parts] == [min(size, 11 - first) for first in range(0, 11, size)]
    rows = [batch["x"] for part in parts for batch in part]
    np.testing.assert_array_equal(np.concatenate(rows), ROWS)


def test_batches_of_a_file_are_the_same_in_parts_the_smaller_last_one_too(tmp_path: Path) -> None:
    samples = open_samples(Samples(source("npy", tmp_path), batch_size=4), [INPUT])
    parts = [list(part) for part in samples.parts(2)]
    assert [[len(batch["x"]) for batch in part] for part in parts] == [[4, 4], [3]]


@pytest.mark.parametrize("kind", ["npy", "folder"])
def test_a_part_of_files_is_their_names_and_no_data(kind: str, tmp_path: Path) -> None:
    samples = open_samples(source(kind, tmp_path), [INPUT])
    assert len(pickle.dumps(next(samples.parts(2)))) < 2000


def test_a_part_is_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source("folder", tmp_path)
    monkeypatch.chdir(tmp_path)
    part = next(open_samples("many", [INPUT]).parts(11))
    monkeypatch.chdir("/")
    assert len(list(part)) == 11


def test_a_value_that_is_not_finite_is_named_by_its_number_in_the_whole_file(
    tmp_path: Path,
) -> None:
    rows = ROWS.copy()
    rows[9, 1] = np.nan
    np.save(tmp_path / "x.npy", rows)
    last = list(open_samples(tmp_path / "x.npy", [INPUT]).parts(4))[-1]
    with pytest.raises(CalibrationError, match="sample 9"):
        list(last)


def test_a_part_by_value_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 2 * ROWS[0].nbytes)
    samples = open_samples({"x": ROWS}, [INPUT])
    assert [part.count for part in samples.parts(100)] == [2, 2, 2, 2, 2, 1]


@pytest.mark.parametrize("kind", ["npy", "arrays"])
def test_samples_end_where_they_are_told_to_in_parts_too(kind: str, tmp_path: Path) -> None:
    samples = open_samples(source(kind, tmp_path), [INPUT])
    seen: list[int] = []
    stopping = samples.until(lambda: len(seen) >= 4)
    for part in stopping.parts(2):
        seen += [0] * len(list(part))
    assert 4 <= len(seen) <= 6
    seen.clear()
    for _ in stopping:
        seen.append(0)
    assert len(seen) == 4
