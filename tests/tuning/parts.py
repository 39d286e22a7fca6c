"""Small subjects for the tests of tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from onnxq.checking.check import Check
from onnxq.samples import Samples
from onnxq.tuning.evaluation.evaluator import Evaluator, baseline_of
from onnxq.tuning.scoring.metric import as_metric
from onnxq.tuning.scoring.subject import NO_WISHES, Subject, Wishes
from onnxq.tuning.scoring.tuning_samples import open_tuning_samples
from tests.examples import images, network, weights
from tests.examples import model as example

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array


def labelled(count: int = 12) -> dict[str, Array]:
    """Images and labels of `network`."""
    return {"x": images(count), "labels": np.arange(count) % 10}


def chain() -> onnx.ModelProto:
    """Two MatMuls, `first` and `second`, from x (N, 16) to y."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w2"], ["y"], "second"),
    ]
    constants = {"w1": weights(1, 16, 16), "w2": weights(2, 16, 16)}
    return example(nodes, constants, {"x": ["N", 16]})


def evaluator_of(
    model: onnx.ModelProto | None = None,
    samples: object = None,
    metric: object = None,
    wishes: Wishes = NO_WISHES,
) -> Evaluator:
    """An evaluator on the samples that it calibrates on."""
    subject = Subject.of(network() if model is None else model, wishes)
    search, _ = open_tuning_samples(
        Samples(labelled() if samples is None else samples), Check.CALIBRATION, subject.inputs
    )
    wanted = as_metric(metric)
    return Evaluator(subject, search, baseline_of(subject, search, wanted), wanted)


def rows(model: onnx.ModelProto, count: int = 8) -> dict[str, Array]:
    """Random samples for a model with one input of floats."""
    (spec,) = Subject.of(model).inputs
    shape = [n if isinstance(n, int) else 1 for n in spec.shape or ()]
    x = np.random.default_rng(0).standard_normal((count, *shape[1:]))
    return {spec.name: x.astype(np.float32)}
