from __future__ import annotations

import inspect

import numpy as np
import pytest

import onnxq
from onnxq import Check
from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec, Samples, open_samples

MAIN = (
    onnxq.quantize,
    onnxq.quantize_dynamic,
    onnxq.quantize_weights,
    onnxq.tune,
    onnxq.verify,
    onnxq.cross_check,
)
X = np.arange(8, dtype=np.float32)[:, None]
INPUTS = [InputSpec("x", np.dtype(np.float32), ("N", 1))]


def test_samples_to_check_on_are_read_like_those_that_it_was_made_from() -> None:
    check = Check.of({"x": X}, Samples({"x": X}, batch_size=2))
    assert check.unseen is not None
    assert check.unseen.batch_size == 2
    assert Check.of(Check.NONE) is Check.NONE


def test_nothing_is_no_check() -> None:
    with pytest.raises(CalibrationError, match=r"wanted samples, onnxq\.Check\.CALIBRATION"):
        Check.of(None)


def test_every_nth_batch_is_held_apart() -> None:
    samples, check = Check(hold_apart=4, min_sqnr_db=3).held_apart(Samples({"x": X}), INPUTS)
    assert [int(batch["x"][0, 0]) for batch in open_samples(samples, INPUTS)] == [0, 1, 2, 4, 5, 6]
    assert check.unseen is not None
    assert [int(batch["x"][0, 0]) for batch in open_samples(check.unseen, INPUTS)] == [3, 7]
    assert check.min_sqnr_db == 3


def test_others_to_check_on_leave_nothing_to_hold_apart() -> None:
    with pytest.raises(CalibrationError, match="give no others"):
        Check({"x": X}, hold_apart=4)


def test_a_goal_is_checked_on_samples_and_has_the_bounds_itself() -> None:
    for check, said in ((Check.NONE, "choose nothing"), (Check({"x": X}, min_sqnr_db=3), "Goal")):
        with pytest.raises(onnxq.errors.QConfigError, match=said):
            onnxq.tune("none.onnx", {"x": X}, check=check)


def test_no_main_function_has_more_than_14_parameters() -> None:
    counts = {each.__name__: len(inspect.signature(each).parameters) for each in MAIN}
    assert max(counts.values()) <= 14
