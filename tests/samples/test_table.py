"""First axes of arrays are samples, but for stacks of whole inputs and numbers for every run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import Batches, InputSpec, Samples, open_samples

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
IMAGE = (InputSpec("image", F32, ("n", 3, 4)),)
STATIC = (InputSpec("image", F32, (2, 3, 4)),)
TEXT = (InputSpec("ids", I64, ("n", 5)), InputSpec("mask", F32, ("n", 5)))


def _images(count: int) -> npt.NDArray[np.float32]:
    return np.arange(count * 12, dtype=np.float32).reshape(count, 3, 4)


def _shapes(samples: Batches) -> list[tuple[int, ...]]:
    return [batch["image"].shape for batch in samples]


def test_the_last_batch_is_smaller_when_the_batch_is_dynamic() -> None:
    samples = open_samples(Samples({"image": _images(5)}, batch_size=2), IMAGE)
    assert _shapes(samples) == [(2, 3, 4), (2, 3, 4), (1, 3, 4)]
    assert samples.count == 3


def test_the_models_static_batch_is_the_default() -> None:
    assert _shapes(open_samples({"image": _images(4)}, STATIC)) == [(2, 3, 4)] * 2


def test_samples_left_over_from_a_static_batch_are_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"5 samples.*static batch of 2.*Give 4 samples"):
        open_samples({"image": _images(5)}, STATIC)


def test_another_batch_size_than_the_static_one_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="batch size 3; the model has a static batch of 2"):
        open_samples(Samples({"image": _images(6)}, batch_size=3), STATIC)


def test_an_array_of_a_rank_more_is_a_stack_of_whole_inputs() -> None:
    samples = open_samples({"image": _images(4).reshape(2, 2, 3, 4)}, STATIC)
    assert _shapes(samples) == [(2, 3, 4)] * 2


def test_stacked_whole_inputs_take_no_batch_size() -> None:
    with pytest.raises(CalibrationError, match="stack of whole inputs"):
        open_samples(Samples({"image": _images(4).reshape(2, 2, 3, 4)}, batch_size=2), IMAGE)


def test_a_scalar_input_has_one_number_per_sample() -> None:
    inputs = (InputSpec("scale", F32, ()),)
    batches = list(open_samples({"scale": np.array([1, 2], np.float32)}, inputs))
    assert [(b["scale"].shape, float(b["scale"])) for b in batches] == [((), 1.0), ((), 2.0)]


def test_several_inputs_and_integers_go_together() -> None:
    ids = np.arange(15).reshape(3, 5)
    source = {"ids": ids, "mask": np.ones((3, 5), np.float32)}
    batches = list(open_samples(Samples(source, batch_size=2), TEXT))
    assert [b["ids"].dtype for b in batches] == [I64, I64]
    np.testing.assert_array_equal(batches[1]["ids"], ids[2:])
    assert batches[1]["mask"].shape == (1, 5)


def test_inputs_with_different_static_first_dimensions_have_no_common_batch() -> None:
    inputs = (InputSpec("a", F32, (1, 5)), InputSpec("b", F32, (2,)))
    source = {"a": np.zeros((2, 5), np.float32), "b": np.zeros(2, np.float32)}
    with pytest.raises(CalibrationError, match="different static first dimensions"):
        open_samples(source, inputs)


def test_axes_without_a_name_may_be_those_of_samples() -> None:
    inputs = (InputSpec("a", F32, (None, 3)), InputSpec("b", F32, ("n", 3)))
    arrays = {"a": np.ones((4, 3), np.float32), "b": np.ones((5, 3), np.float32)}
    with pytest.raises(CalibrationError, match="different numbers of samples"):
        open_samples(arrays, inputs)


def test_different_numbers_of_samples_are_an_error() -> None:
    source = {"ids": np.zeros((3, 5), np.int64), "mask": np.zeros((2, 5), np.float32)}
    with pytest.raises(CalibrationError, match="'ids' 3, 'mask' 2"):
        open_samples(source, TEXT)


VOICE = (InputSpec("x", F32, ("n", 8)), InputSpec("rate", I64, ()))


def _rates(samples: Batches) -> list[tuple[type, tuple[int, ...], int]]:
    return [(type(b["rate"]), b["rate"].shape, int(b["rate"])) for b in samples]


def test_a_stack_of_numbers_is_given_one_by_one_as_arrays() -> None:
    arrays = {"x": np.ones((2, 8), np.float32), "rate": np.array([8000, 16000])}
    assert _rates(open_samples(arrays, VOICE)) == [(np.ndarray, (), 8000), (np.ndarray, (), 16000)]


def test_a_number_of_another_type_is_refused() -> None:
    arrays = {"x": np.ones((2, 8), np.float32), "rate": np.array(16000.0)}
    with pytest.raises(CalibrationError, match="'rate' is float64; the model wants int64"):
        open_samples(arrays, VOICE)


def test_a_number_in_place_of_samples_is_refused() -> None:
    arrays = {"x": np.array(1, np.float32), "rate": np.array(16000)}
    with pytest.raises(CalibrationError, match="'x' is a single number; its first axis must be"):
        open_samples(arrays, VOICE)


def test_numbers_alone_are_one_run() -> None:
    assert _rates(open_samples({"rate": np.array(16000)}, VOICE[1:])) == [(np.ndarray, (), 16000)]
