from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import dtypes, qtensor
from onnxq.errors import ModelError, OutputError
from onnxq.qtensor import load, quantize_per_channel, quantize_per_tensor, save

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).random((100, 100), np.float32)


@pytest.mark.parametrize("dtype", [t for t in dtypes.all_qdtypes() if t.is_integer], ids=str)
def test_what_is_saved_is_loaded(tmp_path: Path, dtype: dtypes.QDType) -> None:
    y = quantize_per_tensor(X, 0.3, 1, dtype)
    save(y, tmp_path / "y.npz")
    assert load(tmp_path / "y.npz").equal(y)


def test_channels_are_saved(tmp_path: Path) -> None:
    y = quantize_per_channel(X, np.linspace(0.1, 1, 100), np.arange(100), 1, qtensor.qint8)
    save(y.clone(), str(tmp_path / "y"))  # the name stays as it is given
    assert load(tmp_path / "y").equal(y)


def test_the_file_has_a_quarter_of_the_float_size(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    save(quantize_per_tensor(X, 0.05, 0, qtensor.qint8), tmp_path / "y.npz")
    float_bytes = (tmp_path / "x.npy").stat().st_size
    # 10,000 integers and about 700 bytes of names and qparams
    assert (tmp_path / "y.npz").stat().st_size < 0.27 * float_bytes


def test_a_view_saves_its_own_elements(tmp_path: Path) -> None:
    y = quantize_per_tensor(X, 0.05, 0, qtensor.qint8)[3].expand(2, 100)
    save(y, tmp_path / "y.npz")
    assert load(tmp_path / "y.npz").equal(y)
    assert (tmp_path / "y.npz").stat().st_size < 1500


def test_a_tensor_can_be_pickled_by_its_owner() -> None:
    y = quantize_per_tensor(X, 0.05, 0, qtensor.qint8)[0]
    assert pickle.loads(pickle.dumps(y)).equal(y)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    y = quantize_per_tensor(X, 0.05, 0, qtensor.qint8)
    with pytest.raises(OutputError, match="cannot be written"):
        save(y, tmp_path / "missing" / "y.npz")
    with pytest.raises(OutputError, match="is a folder"):
        save(y, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    path.write_bytes(b"old")
    save(quantize_per_tensor(X, 0.05, 0, qtensor.qint8), path)
    assert load(path).size() == (100, 100)


def test_what_is_no_saved_tensor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    with pytest.raises(ModelError, match="FileNotFoundError"):
        load(path)
    np.savez(path, other=X)
    with pytest.raises(ModelError, match=r"KeyError.*Give a file that onnxq\.qtensor\.save wrote"):
        load(path)
    np.save(path.with_suffix(".npy"), X)
    with pytest.raises(ModelError, match=r"Give a file that onnxq\.qtensor\.save wrote"):
        load(path.with_suffix(".npy"))
    y = quantize_per_tensor(X, 0.05, 0, qtensor.qint8)
    save(y, path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelError):
        load(path)


def test_integers_that_do_not_fit_the_qparams_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    save(quantize_per_tensor(X, 0.05, 0, "int4"), path)
    with np.load(path) as arrays:
        qparams = arrays["qparams"]
    np.savez(path, integers=np.full((2,), 9, np.int8), qparams=qparams)
    with pytest.raises(ModelError, match="int4 holds -8 to 7"):
        load(path)
