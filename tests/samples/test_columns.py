from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples.columns import npy_column, npz_columns, whole

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_of_npz_members_come_in_order(tmp_path: Path, save: object) -> None:
    x = np.arange(24, dtype=np.int16).reshape(6, 4)
    assert callable(save)
    save(tmp_path / "x.npz", x=x, y=x[::-1])
    columns = npz_columns(tmp_path / "x.npz", "samples")
    assert columns["x"].shape == (6, 4)
    assert columns["x"].dtype == np.int16
    with columns["x"].open() as first, columns["y"].open() as second:
        for start in (0, 2, 4):
            np.testing.assert_array_equal(first.rows(2), x[start : start + 2])
            np.testing.assert_array_equal(second.rows(2), x[::-1][start : start + 2])


def test_a_large_npz_member_is_not_loaded_whole(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((64, 1 << 18), np.float32))  # 64 MB
    tracemalloc.start()
    with npz_columns(tmp_path / "x.npz", "samples")["x"].open() as reader:
        for _ in range(64):
            reader.rows(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("array", [np.zeros((2, 0), np.float32), np.float32(3), np.arange(4) > 1])
def test_odd_arrays_are_read_whole(tmp_path: Path, array: npt.NDArray[np.generic]) -> None:
    np.save(tmp_path / "x.npy", array)
    got = whole(npy_column(tmp_path / "x.npy", "x"))
    assert got.shape == np.shape(array)
    np.testing.assert_array_equal(got, array)


def test_fortran_ordered_arrays_have_the_same_rows(tmp_path: Path) -> None:
    x = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    np.save(tmp_path / "x.npy", x)
    column = npy_column(tmp_path / "x.npy", "x")
    with column.open() as reader:
        np.testing.assert_array_equal(reader.rows(1), x[:1])
        np.testing.assert_array_equal(reader.rows(1), x[1:])
    np.testing.assert_array_equal(whole(column), x)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object))
    with pytest.raises(CalibrationError, match="holds Python objects"):
        npy_column(tmp_path / "x.npy", "samples 'x'")


def test_a_truncated_npy_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 100)))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CalibrationError, match="it ends early"):
        whole(npy_column(path, "samples 'x'"))


def test_a_file_that_is_no_npy_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("no array at all")
    with pytest.raises(CalibrationError, match="it is no npy data"):
        npy_column(tmp_path / "x.npy", "samples 'x'")


def test_a_damaged_member_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((4, 1000)))
    data = bytearray(path.read_bytes())
    data[20000] ^= 1  # inside the stored zeros: only the checksum tells
    path.write_bytes(bytes(data))
    with pytest.raises(CalibrationError, match="cannot be read: Bad CRC-32"):
        whole(npz_columns(path, "samples")["x"])


def test_a_header_that_claims_more_than_the_file_holds_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 100), np.float32))
    data = path.read_bytes()
    # 447 GiB in the space of the shape that was there
    path.write_bytes(data.replace(b"(4, 100), }     ", b"(120000000000,)}"))
    with pytest.raises(CalibrationError, match="has 480000000000 bytes, the file 1600"):
        npy_column(path, "samples 'x'")


def test_a_member_that_unpacks_to_far_more_than_samples_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.samples.columns.BOMB_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1 << 18, 2), np.float32))
    with pytest.raises(CalibrationError, match=r"array 'x': \d+ bytes in the file unpack to 20972"):
        npz_columns(tmp_path / "x.npz", "samples")


def test_one_reading_takes_no_more_memory_than_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.samples.columns.READ_BYTES", 1000)
    np.save(tmp_path / "x.npy", np.zeros((4, 100), np.float32))
    column = npy_column(tmp_path / "x.npy", "x")
    with column.open() as reader:
        assert reader.rows(2).shape == (2, 100)
    with column.open() as reader, pytest.raises(CalibrationError, match="at most 0 MiB are read"):
        reader.rows(3)


@pytest.mark.parametrize(
    "header",
    ["(" * 3000, "{'descr': 'V0', 'fortran_order': False, 'shape': (2,), }"]
    + [
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        for shape in ("(-1, 4)", "(0, 99999999999999999999)", "(True,)", str((1,) * 99))
    ],
    ids=["brackets", "no bytes", "negative", "huge", "bool", "rank"],
)
def test_no_header_gets_through_as_another_error(tmp_path: Path, header: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(CalibrationError):
        whole(npy_column(path, "samples 'x'"))


def test_an_npz_of_very_many_arrays_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.samples.columns.MAX_MEMBERS", 2)
    np.savez(tmp_path / "x.npz", a=1, b=2, c=3)
    with pytest.raises(CalibrationError, match="holds 3 arrays; wanted one per input"):
        npz_columns(tmp_path / "x.npz", "samples")
