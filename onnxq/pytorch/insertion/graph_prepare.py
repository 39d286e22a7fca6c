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

from onnxq.errors import QConfigError, listed
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.insertion.annotate import annotate_program, training_mapping
from onnxq.pytorch.insertion.builder import Builder, ObservingBuilder, TrainingBuilder
from onnxq.pytorch.insertion.improved_start import check_improve, improved_form, start_improved
from onnxq.pytorch.numerics.check_observed import check_observed_values
from onnxq.pytorch.numerics.ranks import check_not_sharded
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.pytorch.train.modes import modes_of, restore_modes
from onnxq.pytorch.train.parametrizations import materialize_weights
from onnxq.qconfig import (
    QConfigMapping,
    default_qconfig_mapping,
)
from onnxq.static.arguments import check_mapping
from onnxq.static.prepare import backend_of

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import Inputs
    from onnxq.pytorch.programs.program import Program
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
        qconfig: names nodes and tensors of the exported model, and improvements of weights
            (`improve`) that training starts from; None: the default for training.
        target: as for onnxq.prepare: decides which integers weights may use.
    Returns:
        A GraphModule in train mode; its meta[ANNOTATIONS] says what is quantized where.
    """
    check_not_sharded(model, "prepare_qat")
    mapping = training_mapping(qconfig, target)
    check_improve(mapping.improve)
    modes = modes_of(model)
    program = _program(model, inputs, mapping)
    builder = _built(TrainingBuilder, model, program, mapping, target)
    prepared = builder.finished(type(model).__name__)
    bound = bind(model, inputs)
    prepared.eval()
    with torch.no_grad():
        prepared(*bound.args, **bound.kwargs)  # every FakeQuantize has seen data
    check_observed_values(prepared)
    found = prepared.meta[ANNOTATIONS]
    notes = found.notes
    if mapping.improve:
        made = improved_form(program, mapping, target, found)
        notes += start_improved(prepared, made, found, builder.fakes)
    restore_modes(prepared.train(), modes)
    prepared.meta[ANNOTATIONS] = replace(found, notes=(*notes, *modes.notes))
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
    """
    check_mapping(qconfig)
    mapping = default_qconfig_mapping(backend_of(target)) if qconfig is None else qconfig
    if mapping.improve:
        raise QConfigError(
            f"prepare: the qconfig asks for the improvements {listed(mapping.improve)}, which look "
            "at the samples again once they were observed. Take them out with "
            "qconfig.set_improve(()); onnxq.quantize and prepare_qat carry them out."
        )
    program = _program(model, inputs, mapping)
    builder = _built(ObservingBuilder, model, program, mapping, target)
    return builder.finished(type(model).__name__).eval()


def _program(model: nn.Module, inputs: Inputs, qconfig: QConfigMapping) -> Program:
    # names are of a model whose lengths are fixed, as onnxq.export makes it
    is_named = bool(qconfig.nodes or qconfig.tensors)
    return program_of(model, inputs, left_open=Open.BATCH if is_named else Open.LENGTHS)


def _built(
    kind: type[Builder],
    model: nn.Module,
    program: Program,
    qconfig: QConfigMapping,
    target: str | Target | None,
) -> Builder:
    traced = training_graph(copy.deepcopy(model), program)
    notes = kind.notes(model, traced, program)
    found = annotate_program(traced, program, qconfig, target)
    found = replace(found, notes=(*found.notes, *program.notes, *notes))
    materialize_weights(traced)  # of which folded ones are made
    builder = kind(traced, found)
    for weight in found.weights:
        builder.weight(weight)
    for group in found.groups:
        builder.activation(group)
    builder.guards()
    builder.bind_inputs()
    return builder
