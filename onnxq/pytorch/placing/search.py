"""Where the quantizers of a PyTorch module sit: where onnxq.prepare puts them in its ONNX form.

There is one set of rules for placement, and it works on ONNX graphs. Training graph and ONNX form
are made of one torch.export program, and both record which of its nodes they stand for. So
`onnxq.prepare` decides, and each quantized tensor is led back to its node by name. Then every
quantized node is gone through: what it reads in the training graph must come from the quantizers
that it has in the ONNX form. A node that cannot be placed stays float in both, and placement begins
anew without it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.errors import UnsupportedError
from onnxq.graph.canonical import canonicalize_module
from onnxq.operator import Float
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.placing.between import kept_float, sums
from onnxq.pytorch.placing.in_blocks import weights_in_blocks
from onnxq.pytorch.placing.names import Names
from onnxq.pytorch.placing.operands import Operands
from onnxq.pytorch.placing.tensors import Tensors
from onnxq.pytorch.placing.view import View
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.parameters_apart import parameters_apart
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.placements import PlacedGroup, PlacedWeight, Placements, Unplaced
from onnxq.qconfig import Choice, QConfigMapping, get_default_qat_qconfig
from onnxq.static.arguments import check_mapping
from onnxq.static.prepare import backend_of, prepare

if TYPE_CHECKING:
    from torch import fx, nn

    from onnxq.pytorch.arguments.bound_inputs import Inputs
    from onnxq.pytorch.programs.program import Program
    from onnxq.targets import Target

__all__ = ["PlacedGroup", "PlacedWeight", "Placements", "Unplaced", "place", "placements"]


def placements(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> Placements:
    """Where prepare_qat(model, inputs=inputs, ...) puts fake-quantize modules; print it.

    Args:
        model: float; left as it is.
        inputs: example inputs of forward, real data where that is possible.
        qconfig: names nodes and tensors as they are printed; None: the default for training.
        target: as for onnxq.prepare.

    Raises:
        UnsupportedError: the module cannot be exported.
        QConfigError: as onnxq.prepare.
    """
    mapping = training_mapping(qconfig, target)
    program = program_of(model, inputs)
    traced = training_graph(copy.deepcopy(model), program)
    return place(traced, program, mapping, target)


def training_mapping(qconfig: QConfigMapping | None, target: str | Target | None) -> QConfigMapping:
    """The qconfig that is given, or the default for training on that target.

    Raises:
        QConfigError: it is no QConfigMapping.
    """
    check_mapping(qconfig, "QConfigMapping(get_default_qat_qconfig({}))")
    if qconfig is not None:
        return qconfig
    return QConfigMapping(get_default_qat_qconfig(backend_of(target)))


def place(
    traced: fx.GraphModule,
    program: Program,
    qconfig: QConfigMapping,
    target: str | Target | None,
) -> Placements:
    """The placements of a program's training graph.

    Args:
        traced: of `training_graph`.
        program: that it was made of.
        qconfig: names nodes and tensors of the program's ONNX form.
        target: as for onnxq.prepare.

    Raises:
        UnsupportedError: the program has no ONNX form.
        QConfigError: as onnxq.prepare.
    """
    # in training every node that can is in integers; nothing is chosen
    mapping = qconfig.set_choice(Choice.ALL_INTEGERS)
    with parameters_apart(program.exported):
        canonical = canonicalize_module(onnx_form(program), types_by_run)
    names = Names(traced, program.exported, program.functions)
    left: dict[str, Unplaced] = {}  # ONNX node -> why it stays float
    while True:
        view = View(traced, names, prepare(canonical.copy(), mapping, target))
        found = _placed(view)
        new = {name: one for one in found.unplaced for name in one.nodes if name not in left}
        if not found.unplaced:
            return _with_reasons(found, left)
        if not new:
            raise UnsupportedError(
                f"'{found.unplaced[0].name}' cannot be placed, and is quantized whatever stays "
                f"float: {found.unplaced[0].reason}"
            )
        left |= new
        for name in new:
            mapping = mapping.set_node(name, None)


def _placed(view: View) -> Placements:
    """Placements of all that can be placed, and a note of each that cannot."""
    tensors = Tensors(view)
    operands = Operands(view, tensors)
    unplaced = [*tensors.place(), *operands.place(), *tensors.place_rows()]
    floats = {n: d.reason.words for n, d in view.prepared.decisions.items() if isinstance(d, Float)}
    in_blocks, reasons = weights_in_blocks(view)
    trained = {weight.exported for weight in in_blocks}
    floats = {name: reasons.get(name, why) for name, why in floats.items() if name not in trained}
    return Placements(
        tensors.placed_groups(),
        (*operands.weights, *in_blocks),
        () if unplaced else tuple(kept_float(view, tensors)),
        floats,
        tuple(unplaced),
        view.prepared.notes,
        () if unplaced else tuple(sums(view, tensors)),
    )


def _with_reasons(found: Placements, left: dict[str, Unplaced]) -> Placements:
    """Placements that say of nodes that could not be placed why they are float."""
    floats = {
        name: f"'{left[name].name}' has no place in the module: {left[name].reason}"
        if name in left
        else reason
        for name, reason in found.floats.items()
    }
    return replace(found, floats=floats, unplaced=tuple(dict.fromkeys(left.values())))
