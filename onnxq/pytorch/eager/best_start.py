"""The post-training result that training starts from: of several, the nearest to float."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from onnxq.errors import CalibrationError
from onnxq.pytorch.arguments.bound_inputs import Inputs
from onnxq.pytorch.eager.prepare import prepare_qat
from onnxq.pytorch.insertion.annotate import training_mapping
from onnxq.pytorch.train.recipe import Loss, distilling, mean_loss
from onnxq.qconfig import QConfigMapping
from onnxq.targets import Target

_IMPROVEMENTS = ((), ("bias",), ("bias", "round"))


def best_start(
    model: nn.Module,
    inputs: Inputs,
    held_apart: Iterable[Any],
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
    loss: Loss | None = None,
) -> nn.Module:
    """The prepared model to train from: the post-training result of lowest loss on batches apart.

    Results are the qconfig's own, and those of the PTQ algorithms `bias`, and `bias` and `round`.
    Converted without a step, the module has the integers of the one that is returned.

    Args:
        model: float; left as it is.
        inputs: real inputs of forward, some hundred rows: observers and PTQ algorithms see them.
        held_apart: batches as `loss` takes them, of other rows.
        qconfig: as for prepare_qat; the PTQ algorithms that it names are tried too.
        target: as for prepare_qat.
        loss: of a model and a batch; None: distilling(model).
    Raises:
        CalibrationError: there are no batches.
        OnnxqError: as prepare_qat.
    """
    batches = list(held_apart)
    if not batches:
        raise CalibrationError("best_start: held_apart has no batches; hold some rows back.")
    judged = distilling(copy.deepcopy(model)) if loss is None else loss
    mapping = training_mapping(qconfig, target)
    names = dict.fromkeys((mapping.algorithms, *_IMPROVEMENTS))
    starts = [
        prepare_qat(model, inputs=inputs, qconfig=replace(mapping, improve=each), target=target)
        for each in names
    ]
    return min(starts, key=lambda start: mean_loss(start, judged, batches))
