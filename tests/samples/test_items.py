from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import Batches, InputSpec, Samples, open_samples

if TYPE_CHECKING:
    from pathlib import Path

F32 = np.dtype(np.float32)
IMAGE = (InputSpec("image", F32, ("n", 3, 4)),)
STATIC = (InputSpec("image", F32, (2, 3, 4)),)
PAIR = (InputSpec("a", F32, ("n", 2)), InputSpec("b", F32, ("n", 2)))


def _images(count: int) -> npt.NDArray[np.float32]:
    return np.arange(count * 12, dtype=np.float32).reshape(count, 3, 4)


def _shapes(samples: Batches) -> list[tuple[int, ...]]:
    return [batch["image"].shape for batch in samples]


class Tensor:
    """The part of a torch tensor that onnxq uses."""

    def __init__(self, array: npt.NDArray[np.float32]) -> None:
        self.array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> npt.NDArray[np.float32]:
        return self.array


def test_items_of_the_inputs_rank_are_batches_and_run_as_they_are() -> None:
    assert _shapes(open_samples([{"image": _images(3)}, {"image": _images(1)}], IMAGE)) == [
        (3, 3, 4),
        (1, 3, 4),
    ]


def test_items_of_a_rank_less_are_samples_and_are_stacked() -> None:
    items = [{"image": x} for x in _images(5)]
    assert _shapes(open_samples(Samples(items, batch_size=2), IMAGE)) == [
        (2, 3, 4),
        (2, 3, 4),
        (1, 3, 4),
    ]


def test_samples_of_another_shape_begin_a_new_batch() -> None:
    inputs = (InputSpec("image", F32, ("n", 3, "w")),)
    items = [np.zeros((3, w), np.float32) for w in (4, 4, 5, 5, 4)]
    assert _shapes(open_samples(Samples(items, batch_size=4), inputs)) == [
        (2, 3, 4),
        (2, 3, 5),
        (1, 3, 4),
    ]


def test_samples_left_over_from_a_static_batch_are_an_error() -> None:
    with pytest.raises(CalibrationError, match="1 samples are left over"):
        list(open_samples(list(_images(3)), STATIC))


def test_a_batch_of_another_size_than_asked_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="batch of 3, which runs as it is; batch size 2"):
        list(open_samples(Samples([_images(3)], batch_size=2), IMAGE))


def test_arrays_and_tensors_feed_a_single_input() -> None:
    assert _shapes(open_samples([_images(2), Tensor(_images(1))], IMAGE)) == [(2, 3, 4), (1, 3, 4)]


def test_a_tuple_is_in_the_order_of_the_inputs_and_may_end_with_a_label() -> None:
    a, b = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
    for item in ((a, b), [a, b, np.array([7])]):
        [batch] = open_samples([item], PAIR)
        assert batch["a"] is a
        assert batch["b"] is b


def test_a_tuple_of_another_length_is_an_error() -> None:
    with pytest.raises(
        CalibrationError, match=r"item 0: 1 arrays; the model has 2 inputs \(a, b\)"
    ):
        list(open_samples([(np.zeros((1, 2), np.float32),)], PAIR))


def test_batches_and_samples_in_one_item_are_an_error() -> None:
    item = {"a": np.zeros((1, 2), np.float32), "b": np.zeros(2, np.float32)}
    with pytest.raises(CalibrationError, match="'a' batch, 'b' sample"):
        list(open_samples([item], PAIR))


def test_an_item_that_is_no_array_is_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"str is not an array of numbers.*ignore="):
        list(open_samples(["cat.jpg"], IMAGE))


def test_wrong_names_ranks_and_dtypes_name_the_item() -> None:
    both = {"imgae": _images(1), "label": np.zeros(1)}
    with pytest.raises(CalibrationError, match=r"item 1: .*no input 'imgae'.*you mean 'image'"):
        list(open_samples([{"image": _images(1)}, both], IMAGE))
    with pytest.raises(CalibrationError, match=r"item 0, array 'image' has shape \(4,\)"):
        list(open_samples([np.zeros(4, np.float32)], IMAGE))
    with pytest.raises(CalibrationError, match="item 0, array 'image' is float64"):
        list(open_samples([_images(1).astype(np.float64)], IMAGE))


def test_one_array_is_for_the_only_input_whatever_its_name_and_that_is_said() -> None:
    with pytest.warns(UserWarning, match="item 0: array 'x' is taken for 'image'"):
        (batch,) = open_samples([{"x": _images(1)}], IMAGE)
    assert list(batch) == ["image"]


def test_nan_in_an_item_names_item_and_sample() -> None:
    bad = _images(3)
    bad[2, 0, 0] = np.nan
    with pytest.raises(CalibrationError, match="item 1, array 'image', sample 2: holds nan"):
        list(open_samples([_images(1), bad], IMAGE))


@pytest.mark.parametrize("items", [[], [np.zeros((0, 3, 4), np.float32)]])
def test_no_samples_are_an_error(items: list[npt.NDArray[np.float32]]) -> None:
    with pytest.raises(CalibrationError, match="no samples"):
        list(open_samples(items, IMAGE))


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", image=_images(2)[1])
    np.save(tmp_path / "a.npy", _images(2)[0])
    (tmp_path / "notes.txt").write_text("not a sample")
    samples = open_samples(tmp_path, IMAGE)
    assert samples.count == 2
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in samples]), _images(2))


def test_a_file_of_the_inputs_rank_is_a_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", _images(3))
    assert _shapes(open_samples(tmp_path, IMAGE)) == [(3, 3, 4)]


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"no samples; wanted .npz, .npy or .safetensors"):
        open_samples(tmp_path, IMAGE)


def test_a_bad_file_in_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("no")
    with pytest.raises(CalibrationError, match=r"a\.npz' is not an npz file"):
        list(open_samples(tmp_path, IMAGE))


@pytest.mark.oracle
def test_torch_data_loaders_are_taken_with_and_without_labels() -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    images = torch.arange(60, dtype=torch.float32).reshape(5, 3, 4)
    for data in (TensorDataset(images), TensorDataset(images, torch.arange(5))):
        samples = open_samples(DataLoader(data, batch_size=2), IMAGE)
        assert _shapes(samples) == [(2, 3, 4), (2, 3, 4), (1, 3, 4)]
        np.testing.assert_array_equal(np.concatenate([b["image"] for b in samples]), images.numpy())


@pytest.mark.oracle
def test_torch_tensors_with_gradients_are_taken() -> None:
    import torch

    [batch] = open_samples([torch.zeros(1, 3, 4, requires_grad=True)], IMAGE)
    assert batch["image"].dtype == np.float32


VOICE = (InputSpec("x", F32, ("n", 8)), InputSpec("rate", np.dtype(np.int64), ()))


def test_numbers_in_files_are_arrays_of_rank_0(tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", x=np.ones((2, 8), np.float32), rate=np.int64(16000))
    (batch,) = open_samples(tmp_path, VOICE)
    assert (type(batch["rate"]), batch["rate"].shape) == (np.ndarray, ())


def test_a_number_of_python_is_a_float32_of_rank_0() -> None:
    inputs = (InputSpec("x", F32, ("n", 8)), InputSpec("gain", F32, ()))
    (batch,) = open_samples([{"x": np.ones((2, 8), np.float32), "gain": 2.0}], inputs)
    assert (batch["gain"].dtype, batch["gain"].shape) == (F32, ())


def test_samples_of_another_number_begin_a_new_batch() -> None:
    rates = (8000, 8000, 16000)
    items = [{"x": np.ones(8, np.float32), "rate": np.array(rate)} for rate in rates]
    batches = list(open_samples(Samples(items, batch_size=2), VOICE))
    assert [(b["x"].shape, b["rate"].shape, int(b["rate"])) for b in batches] == [
        ((2, 8), (), 8000),
        ((1, 8), (), 16000),
    ]


@pytest.mark.parametrize("kind", ["pipe", "device", "dangling"])
def test_files_of_a_folder_are_regular(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "0.npz", image=_images(1))
    odd = tmp_path / "1.npz"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    with pytest.raises(CalibrationError, match=r"'1.npz': it is a (named pipe|device|link to)"):
        open_samples(tmp_path, IMAGE)


def test_arrays_without_names_in_a_folder_are_for_one_input(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.float32(1))
    specs = [InputSpec(name, np.dtype(np.float32), ()) for name in "ab"]
    with pytest.raises(
        CalibrationError, match=r"2 inputs \(a, b\)\. .*savez\(path, a=..., b=...\)"
    ):
        list(open_samples(tmp_path, specs))


def test_sequences_have_no_samples() -> None:
    spec = InputSpec("s", np.dtype(np.float32), (3,), is_tensor=False)
    with pytest.raises(CalibrationError, match="input 's' is a sequence or an optional"):
        open_samples([np.zeros(3, np.float32)], [spec])
