"""A traced module with fake-quantize modules where onnxq.prepare puts its quantizers: it trains.

conv, bn, relu      become one intrinsic QAT module (a ReLU6 stays behind it, as a module)
conv, linear        become QAT modules
a quantized tensor  goes through a FakeQuantize; tensors of one group go through the same one
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import fx, nn

from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.numerics.check_observed import check_observed_values
from onnxq.pytorch.numerics.ranks import check_not_sharded
from onnxq.pytorch.placing.builder import Builder, ObservingBuilder, TrainingBuilder
from onnxq.pytorch.placing.search import place
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.given_weights import settle_weights
from onnxq.pytorch.train.modes import modes_of, restore_modes
from onnxq.pytorch.train.placements import PLACEMENTS
from onnxq.qconfig import (
    QConfigMapping,
    default_qconfig_mapping,
    get_default_qat_qconfig,
)
from onnxq.static.prepare import backend_of

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import Inputs
    from onnxq.targets import Target


def prepare_graph_qat(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> fx.GraphModule:
    """A copy of the model that trains with fake quantization; what prepare_qat gives with `inputs`.

    Args:
        model: float; left as it is.
        inputs: example inputs of forward: real data, which the observers see once.
        qconfig: names nodes and tensors of the exported model; None: the default for training.
        target: as for onnxq.prepare: decides which codes weights may use.

    Returns:
        A GraphModule in train mode; its meta[PLACEMENTS] says what is quantized where.

    Raises:
        UnsupportedError: torch.export does not take the module.
        QConfigError: the qconfig has observers where training wants fake quantization.
    """
    check_not_sharded(model, "prepare_qat")
    mapping = qconfig or QConfigMapping(get_default_qat_qconfig(backend_of(target)))
    modes = modes_of(model)
    prepared = _prepared(TrainingBuilder, model, inputs, mapping, target)
    bound = bind(model, inputs)
    prepared.eval()
    with torch.no_grad():
        prepared(*bound.args, **bound.kwargs)  # every FakeQuantize has seen data
    check_observed_values(prepared)
    restore_modes(prepared.train(), modes)
    found = prepared.meta[PLACEMENTS]
    prepared.meta[PLACEMENTS] = replace(found, notes=(*found.notes, *modes.notes))
    return prepared


def prepare_graph(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> fx.GraphModule:
    """A copy of the model that observes; what prepare gives with `inputs`.

    Args:
        model: float; left as it is.
        inputs: example inputs of forward; they are not observed.
        qconfig: names nodes and tensors of the exported model; None: onnxq's default.
        target: as for onnxq.prepare.

    Returns:
        A GraphModule in eval mode, batch norm folded; run it on data, then convert it.

    Raises:
        UnsupportedError: as prepare_graph_qat.
    """
    mapping = qconfig or default_qconfig_mapping(backend_of(target))
    return _prepared(ObservingBuilder, model, inputs, mapping, target).eval()


def _prepared(
    kind: type[Builder],
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping,
    target: str | Target | None,
) -> fx.GraphModule:
    # names are of a model whose lengths are fixed, as onnxq.export makes it
    is_named = bool(qconfig.nodes or qconfig.tensors)
    left_open = Open.BATCH if is_named else Open.LENGTHS
    program = program_of(model, inputs, left_open=left_open)
    traced = training_graph(copy.deepcopy(model), program)
    notes = kind.notes(model, traced, program)
    found = place(traced, program, qconfig, target)
    found = replace(found, notes=(*found.notes, *program.notes, *notes))
    settle_weights(traced)  # of which folded ones are made
    builder = kind(traced, found)
    for weight in found.weights:
        builder.weight(weight)
    for group in found.groups:
        builder.activation(group)
    builder.guards()
    builder.bind_inputs()
    return builder.finished(type(model).__name__)
