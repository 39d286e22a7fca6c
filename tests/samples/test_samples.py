from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.errors import CalibrationError, QConfigError
from onnxq.samples import Samples
from onnxq.samples.samples import without_state

X = np.ones((4, 2), np.float32)
STATE = {"h_out": "h"}


def test_a_source_alone_is_read_like_others() -> None:
    like = Samples(X, batch_size=2, ignore=["labels"], feedback=STATE)
    found = Samples.of({"x": X}, like)
    assert (found.batch_size, found.ignore, found.feedback) == (2, ["labels"], STATE)
    assert Samples.of(like) is like
    assert Samples.of(X).batch_size is None


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"feedback": ["y"]}, QConfigError, r"feedback is a list .*; wanted \{output name: input"),
        ({"feedback": "y"}, QConfigError, r"feedback is a str .*; wanted \{output name: input"),
        ({"feedback": {"y": 1}}, QConfigError, r"wanted \{output name: input"),
        ({"batch_size": "4"}, CalibrationError, r"batch size '4'; wanted a whole number from 1"),
        ({"batch_size": True}, CalibrationError, r"batch size True; wanted a whole number"),
        ({"ignore": "labels"}, CalibrationError, r"ignore are 'labels'; wanted a list of names"),
        ({"ignore": 3}, CalibrationError, r"names to ignore are 3; wanted a list of names"),
    ],
)
def test_values_of_another_type_are_refused(
    how: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Samples(X, **how)


def test_samples_cannot_name_another_state_than_the_model_was_prepared_with() -> None:
    assert Samples(X).with_feedback(STATE).feedback == STATE
    with pytest.raises(QConfigError, match="Give `prepare` the same feedback"):
        Samples(X, feedback=STATE).with_feedback({})


def test_a_job_that_runs_each_batch_alone_refuses_state() -> None:
    assert without_state(Samples(X), "bench").feedback == {}
    with pytest.raises(QConfigError, match="quantize_weights runs every batch alone"):
        onnxq.quantize_weights("none.onnx", Samples(X, feedback=STATE))
