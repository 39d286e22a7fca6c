from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import Batches, InputSpec, Samples, open_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onnxq.core.arrays import Array

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
IMAGE = (InputSpec("image", F32, ("n", 3, 4)),)
STATIC = (InputSpec("image", F32, (2, 3, 4)),)
TEXT = (InputSpec("ids", I64, ("n", 5)), InputSpec("mask", F32, ("n", 5)))


def _images(count: int) -> npt.NDArray[np.float32]:
    return np.arange(count * 12, dtype=np.float32).reshape(count, 3, 4)


def _npz(folder: Path, **arrays: Array) -> Path:
    path = folder / "images.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # see static/statistics.py
    return path


def _shapes(samples: Batches) -> list[tuple[int, ...]]:
    return [batch["image"].shape for batch in samples]


def test_npz_arrays_are_cut_into_single_samples(tmp_path: Path) -> None:
    samples = open_samples(_npz(tmp_path, image=_images(3)), IMAGE)
    assert samples.count == 3
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in samples]), _images(3))


def test_samples_can_be_gone_through_again(tmp_path: Path) -> None:
    samples = open_samples(_npz(tmp_path, image=_images(3)), IMAGE)
    assert _shapes(samples) == _shapes(samples) == [(1, 3, 4)] * 3


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_an_error(size: int) -> None:
    with pytest.raises(CalibrationError, match="wanted 1 or more"):
        open_samples(Samples({"image": _images(2)}, batch_size=size), IMAGE)


RECURRENT = (InputSpec("x", F32, ("steps", "n", 3)), InputSpec("h", F32, (1, "n", 4)))


@pytest.mark.parametrize("source", ["arrays", "file"])
def test_arrays_whose_first_axes_are_different_ones_are_one_run(
    source: str, tmp_path: Path
) -> None:
    arrays = {"x": np.ones((6, 2, 3), np.float32), "h": np.ones((1, 2, 4), np.float32)}
    samples = open_samples(arrays if source == "arrays" else _npz(tmp_path, **arrays), RECURRENT)
    assert samples.count == 1
    for _ in range(2):
        (batch,) = samples
        assert {name: x.shape for name, x in batch.items()} == {"x": (6, 2, 3), "h": (1, 2, 4)}


def test_whole_runs_may_be_stacked_or_listed() -> None:
    arrays = {"x": np.ones((6, 2, 3), np.float32), "h": np.ones((1, 2, 4), np.float32)}
    stacked = {name: np.stack([x, x]) for name, x in arrays.items()}
    for source in (stacked, [arrays, arrays]):
        samples = open_samples(source, RECURRENT)
        assert samples.count == 2
        assert [batch["x"].shape for batch in samples] == [(6, 2, 3)] * 2


def test_items_need_no_batch_axis_in_common() -> None:
    inputs = (*RECURRENT, InputSpec("h2", F32, (2, "n", 4)))
    sizes = {"x": (6, 2, 3), "h": (1, 2, 4), "h2": (2, 2, 4)}
    item = {name: np.ones(shape, np.float32) for name, shape in sizes.items()}
    samples = open_samples([item], inputs)
    assert samples.count == 1
    assert len(list(samples)) == 1
    assert len(list(open_samples(item, inputs))) == 1
    sample = {name: x[0] for name, x in item.items()}
    with pytest.raises(CalibrationError, match=r"no batch axis in common\. Give whole inputs"):
        list(open_samples([sample], inputs))


def test_npy_is_for_a_single_input(tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.save(path, _images(2))
    assert _shapes(open_samples(path, IMAGE)) == [(1, 3, 4)] * 2
    with pytest.raises(CalibrationError, match=r"model with 2 inputs \(ids, mask\)"):
        open_samples(path, TEXT)


def test_an_array_is_for_a_single_input() -> None:
    assert _shapes(open_samples(_images(2), IMAGE)) == [(1, 3, 4)] * 2


def test_samples_stay_as_they_are() -> None:
    samples = open_samples({"image": _images(2)}, IMAGE)
    assert open_samples(samples, IMAGE) is samples


def test_an_unknown_name_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    path = _npz(tmp_path, imgae=_images(2), label=np.zeros(2))
    with pytest.raises(CalibrationError, match=r"no input 'imgae'.*Did you mean 'image'"):
        open_samples(path, IMAGE)


def test_one_array_is_for_the_only_input_whatever_its_name(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="array 'x' is taken for 'image', the model's only input"):
        opened = open_samples(_npz(tmp_path, x=_images(2)), IMAGE)
    assert list(next(iter(opened))) == ["image"]


def test_labels_can_be_ignored_by_name(tmp_path: Path) -> None:
    path = _npz(tmp_path, image=_images(2), label=np.zeros(2))
    with pytest.raises(CalibrationError, match="no input 'label'"):
        open_samples(path, IMAGE)
    assert list(next(iter(open_samples(Samples(path, ignore=["label"]), IMAGE)))) == ["image"]


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="input 'mask' is missing; got ids"):
        open_samples({"ids": np.zeros((3, 5), np.int64)}, TEXT)


def test_an_optional_input_may_be_missing() -> None:
    inputs = (*IMAGE, InputSpec("state", F32, ("n", 2), optional=True))
    assert _shapes(open_samples({"image": _images(2)}, inputs)) == [(1, 3, 4)] * 2


def test_another_shape_is_an_error(tmp_path: Path) -> None:
    path = _npz(tmp_path, image=np.zeros((2, 4, 3), np.float32))
    with pytest.raises(CalibrationError, match=r"shape \(2, 4, 3\).*'image'.*\(n, 3, 4\)"):
        open_samples(path, IMAGE)


def test_another_rank_is_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"has shape \(12,\)"):
        open_samples({"image": np.zeros(12, np.float32)}, IMAGE)


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        (np.float64, r"float64; the model wants float32. Convert them with .astype\(numpy.float32"),
        (np.float16, "float16; the model wants float32.*computes float16 models in float32"),
        (np.uint8, "uint8; the model wants float32. Preprocess them as in training"),
        (np.int64, "Preprocess them"),
    ],
)
def test_another_dtype_is_an_error_with_the_remedy(dtype: type[np.generic], remedy: str) -> None:
    with pytest.raises(CalibrationError, match=remedy):
        open_samples({"image": _images(2).astype(dtype)}, IMAGE)


def test_floats_for_integers_are_an_error() -> None:
    source = {"ids": np.zeros((3, 5), np.int32), "mask": np.zeros((3, 5), np.float32)}
    with pytest.raises(CalibrationError, match="'ids' is int32; the model wants int64"):
        open_samples(source, TEXT)


@pytest.mark.parametrize("form", [list, lambda rows: np.array(rows, object)])
def test_texts_of_different_lengths_say_how_to_give_them(
    form: Callable[[list[list[int]]], object],
) -> None:
    ids = form([[1, 2, 3], [4, 5]])
    with pytest.raises(CalibrationError, match=r"array 'ids'.*different lengths.* list of dicts"):
        open_samples({"ids": ids, "mask": np.zeros((2, 5), np.float32)}, TEXT)


def test_no_samples_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="no samples"):
        open_samples(_npz(tmp_path, image=_images(0)), IMAGE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_are_errors_that_name_array_and_sample(tmp_path: Path, value: float) -> None:
    images = _images(5)
    images[3, 1, 2] = value
    samples = open_samples(Samples(_npz(tmp_path, image=images), batch_size=2), IMAGE)
    with pytest.raises(CalibrationError, match=r"array 'image', sample 3: holds -?(nan|inf) at"):
        list(samples)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="there is no such file"):
        open_samples(tmp_path / "none.npz", IMAGE)


def test_a_file_that_is_no_npz_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    path.write_text("these are no images")
    with pytest.raises(CalibrationError, match="is not an npz file"):
        open_samples(path, IMAGE)


def test_one_sample_without_its_axis_is_told_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"one sample: array\[None\] has that shape"):
        open_samples(_npz(tmp_path, image=_images(1)[0]), IMAGE)


def test_one_image_is_no_file_of_samples(tmp_path: Path) -> None:
    (tmp_path / "0.PNG").touch()
    with pytest.raises(CalibrationError, match=r"it is an image. Give .* or a folder"):
        open_samples(tmp_path / "0.PNG", IMAGE)


def test_something_else_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="samples are an int; wanted a path"):
        open_samples(5, IMAGE)


def test_a_generator_is_streamed_once_and_refused_the_second_time() -> None:
    samples = open_samples(({"image": x} for x in _images(3)), IMAGE)
    assert _shapes(samples) == [(1, 3, 4)] * 3
    with pytest.raises(CalibrationError, match="Pass a list, or a function that returns a new"):
        list(samples)


def test_a_function_that_returns_a_generator_can_be_gone_through_again() -> None:
    samples = open_samples(lambda: ({"image": x} for x in _images(3)), IMAGE)
    assert _shapes(samples) == _shapes(samples) == [(1, 3, 4)] * 3


def test_one_run_is_checked_as_batches_are() -> None:
    arrays = {"x": np.ones((6, 2, 3), np.float32), "h": np.ones((1, 2, 4), np.float32)}
    with pytest.raises(CalibrationError, match="float64"):
        open_samples(arrays | {"x": arrays["x"].astype(np.float64)}, RECURRENT)
    with pytest.raises(CalibrationError, match="the model wants 'h'"):
        open_samples(arrays | {"h": np.ones((1, 2, 5), np.float32)}, RECURRENT)
    with pytest.raises(CalibrationError, match="holds nan"):
        list(open_samples(arrays | {"x": arrays["x"] * np.float32(np.nan)}, RECURRENT))
    with pytest.raises(CalibrationError, match=r"different numbers of samples.*whole inputs"):
        open_samples(Samples(arrays, batch_size=2), RECURRENT)


VOICE = (InputSpec("x", F32, ("n", 8)), InputSpec("rate", I64, ()))


def test_a_number_in_an_npz_is_given_to_every_run(tmp_path: Path) -> None:
    path = _npz(tmp_path, x=np.ones((5, 8), np.float32), rate=np.array(16000))
    samples = open_samples(Samples(path, batch_size=2), VOICE)
    assert [(b["rate"].shape, int(b["rate"])) for b in samples] == [((), 16000)] * 3
    assert [b["x"].shape for b in samples] == [(2, 8), (2, 8), (1, 8)]


class DataReader:
    """The part of a CalibrationDataReader that ONNX Runtime documents."""

    def __init__(self) -> None:
        self._left = [{"image": x[None]} for x in _images(3)]

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop(0) if self._left else None


class WholeDataReader(DataReader):
    """A reader with all that ONNX Runtime's base class has."""

    def __iter__(self) -> WholeDataReader:
        return self

    def __next__(self) -> dict[str, Array]:
        if (batch := self.get_next()) is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        raise NotImplementedError

    def rewind(self) -> None:
        DataReader.__init__(self)


@pytest.mark.parametrize("kind", [DataReader, WholeDataReader])
def test_onnxruntimes_data_readers_are_samples(kind: type[DataReader]) -> None:
    samples = open_samples(kind(), IMAGE)
    assert samples.count is None
    assert _shapes(samples) == [(1, 3, 4)] * 3


def test_a_data_reader_is_gone_through_twice_if_it_can_rewind() -> None:
    samples = open_samples(WholeDataReader(), IMAGE)
    assert _shapes(samples) == _shapes(samples)
    samples = open_samples(DataReader(), IMAGE)
    assert len(_shapes(samples)) == 3
    with pytest.raises(CalibrationError, match="this DataReader was gone through already, and has"):
        _shapes(samples)


class Dataset:
    """NNCF's Dataset: a source, and a function that makes inputs of its items."""

    def __init__(self, items: Sequence[tuple[Array, int]]) -> None:
        self._items = items

    def get_length(self) -> int:
        return len(self._items)

    def get_data(self) -> Iterator[tuple[Array, int]]:
        return iter(self._items)

    def get_inference_data(self) -> Iterator[dict[str, Array]]:
        return ({"x": image} for image, _ in self._items)


def test_datasets_of_nncf_give_what_their_transform_gives_and_can_be_read_twice() -> None:
    items = [(np.full((2,), i, np.float32), i) for i in range(3)]
    spec = InputSpec("x", np.dtype(np.float32), ("N", 2))
    samples = open_samples(Dataset(items), (spec,))
    assert samples.count == 3
    for _ in range(2):
        assert [batch["x"].tolist() for batch in samples] == [[[0, 0]], [[1, 1]], [[2, 2]]]
