"""Annotation of a training graph: the nodes whose results are quantized, and their parameters.

`onnxq.prepare` alone decides, on the module's ONNX form. Training graph and ONNX form are made of
one torch.export program, and the nodes of both record their node of the program:

    quantized tensor of the ONNX form  --node of the program-->  node of the training graph

Then each quantized node is checked: its inputs in the training graph must come from the quantizers
that it has in the ONNX form. A node that fails stays float in both, and annotation begins again
without it.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import fx, nn
from torch.export import ExportedProgram

from onnxq.catalog import has_dynamic_quantization
from onnxq.errors import UnsupportedError
from onnxq.graph.canonical import canonicalize_module
from onnxq.graph.walk import node_name
from onnxq.operator import Float
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.arguments.bound_inputs import Inputs
from onnxq.pytorch.arguments.forward import copied
from onnxq.pytorch.insertion.operands import Operands
from onnxq.pytorch.insertion.tensors import Tensors
from onnxq.pytorch.insertion.view import Names, View, is_tensor
from onnxq.pytorch.modules.parametrized_layer import weighted_layer
from onnxq.pytorch.nn.qat.linear import rounding_part
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import Program, program_of
from onnxq.pytorch.programs.train_mode import row_notes
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.annotations import AnnotatedWeight, Annotations, Unannotated
from onnxq.qconfig import (
    Choice,
    FakeQuantSpec,
    QConfigDynamic,
    QConfigMapping,
    get_default_qat_qconfig,
)
from onnxq.qdq.sum_scales import ADD, Sum
from onnxq.static.arguments import check_mapping
from onnxq.static.planning.plan_sums import find_sums
from onnxq.static.prepare import backend_of, prepare
from onnxq.targets import Target

# --- Parameters of other values while a program's ONNX form is made, so that none is like another.
#
#     bias = 0, 0, ...;  gamma = 1, 1, ...    drawn from [0.5, 1.5)
#     two parameters of equal values          the second drawn
#
# torch's exporter merges equal constants, and leaves out a sum with 0 and a product with 1: where
# quantizers sit would depend on how far a model is trained.

_SEED = 0


@contextlib.contextmanager
def parameters_apart(program: ExportedProgram) -> Iterator[None]:
    """A context in which parameters that are constant, or equal to others, have other values."""
    state = program.state_dict
    held = dict(state)
    parameters = {name: state[name] for name in program.graph_signature.parameters}
    state.update(_apart(parameters))
    try:
        yield
    finally:
        state.update(held)


def _apart(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Other values for those that need them; tied parameters stay tied."""
    generator = torch.Generator().manual_seed(_SEED)
    drawn: dict[int, torch.Tensor] = {}
    first: dict[tuple[object, ...], torch.Tensor] = {}
    for x in parameters.values():
        if id(x) in drawn or not x.is_floating_point() or not x.numel():
            continue
        is_first = first.setdefault(_key(x), x) is x
        if not is_first or bool((x == x.flatten()[0]).all()):
            values = torch.rand(x.shape, generator=generator) + 0.5
            drawn[id(x)] = torch.nn.Parameter(values.to(x), requires_grad=x.requires_grad)
    return {name: drawn[id(x)] for name, x in parameters.items() if id(x) in drawn}


def _key(x: torch.Tensor) -> tuple[object, ...]:
    """Equal for equal values."""
    values = x.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()
    return (x.dtype, tuple(x.shape), hashlib.sha256(values.tobytes()).digest())


# --- Layers whose weight alone is trained, in blocks: what a QConfigDynamic says of a linear layer.


def groupwise_weights(view: View) -> tuple[tuple[AnnotatedWeight, ...], Mapping[str, str]]:
    """Weights that are trained in blocks, in graph order; ONNX node -> why another stays float."""
    annotated: dict[str, AnnotatedWeight] = {}  # path -> weight; a layer may be called twice
    reasons: dict[str, str] = {}
    for node in view.nodes:
        entry = view.prepared.qconfig.entry_for_node(node_name(node), node.op_type)
        if not isinstance(entry, QConfigDynamic) or not has_dynamic_quantization(node):
            continue
        found = _groupwise_weight(view, node, entry)
        if isinstance(found, str):
            reasons[node_name(node)] = found
        else:
            annotated.setdefault(found.path, found)
    return tuple(annotated.values()), reasons


def _groupwise_weight(view: View, node: ir.Node, entry: QConfigDynamic) -> AnnotatedWeight | str:
    """The weight of a node, or why it is not trained."""
    if not isinstance(entry.weight, FakeQuantSpec):
        return (
            f"its QConfigDynamic has the observer {entry.weight}, which does not round: it is not "
            "trained. Quantize it afterwards, or give it a FakeQuantSpec and a block size"
        )
    if entry.block_size is None:
        return "weights alone are trained in blocks; give its QConfigDynamic a block size"
    for value in _results(node):
        for made in view.names.nodes(value):
            layer = _linear(view.traced, made)
            if layer is not None:
                part = rounding_part(entry, node_name(node))
                return AnnotatedWeight(
                    made.name, layer, None, node_name(node), part, entry.block_size
                )
    return f"weights of linear layers are trained in blocks; this {node.op_type} is no call of one"


def _results(node: ir.Node) -> list[ir.Value]:
    """Results of the node, and of its one reader with a constant: the bias of a layer."""
    found = list(node.outputs)
    readers = [use.node for value in found for use in value.uses()]
    if len(readers) != 1 or not any(v and v.is_initializer() for v in readers[0].inputs):
        return found
    return [*found, *readers[0].outputs]


def _linear(traced: fx.GraphModule, made: fx.Node) -> str | None:
    """Path of the linear layer that a node calls; behind it, batch norm may be folded in ONNX."""
    for node in (made, *made.all_input_nodes[:1]):
        found = weighted_layer(traced, node)
        if found is not None:
            return found[0] if isinstance(found[1], nn.Linear) else None
    return None


# --- Nodes between quantized tensors that stay float, and sums of integers.


def kept_float(view: View, tensors: Tensors) -> Iterator[str]:
    """Float nodes that need a guard, as in the rewrite (onnxq.static.rewrite.guards)."""
    for node in view.nodes:
        if view.quantized(node) is not None or node not in view.fusible:
            continue
        results = [v for v in node.outputs if v.name]
        cores = [n for v in results for n in view.names.nodes(v)]
        read = [n for n in cores[0].all_input_nodes if is_tensor(n)] if cores else []
        rounded = [tensors.group_of(tensors.source(n)) is not None for n in read]
        quantized = any(v.name in tensors.of for v in results)
        if read and all(rounded) and (quantized or len(read) > 1):
            yield cores[0].name


def sums(view: View, tensors: Tensors) -> Iterator[Sum]:
    """Sums that ONNX Runtime runs as QLinearAdd, where the target wants sums to agree."""
    if not view.prepared.target.agreeing_sums:
        return
    for one in find_sums(view.prepared, view.prepared.decisions):
        sides = [[tensors.first(t) for t in side] for side in (one.inputs, one.outputs)]
        # others are written by the rewrite alone, and computed in float in an exported module
        if one.op_type == ADD and all(name for side in sides for name in side):
            yield replace(one, inputs=tuple(sides[0]), outputs=tuple(sides[1]))


def annotate(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> Annotations:
    """Where prepare_qat(model, inputs=inputs, ...) puts fake-quantize modules; print the result.

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
    traced = training_graph(copied(model), program)
    found = annotate_program(traced, program, mapping, target)
    return replace(found, notes=(*found.notes, *row_notes(traced, program)))


def training_mapping(qconfig: QConfigMapping | None, target: str | Target | None) -> QConfigMapping:
    """The qconfig that is given, or the default for training on that target."""
    check_mapping(qconfig, "QConfigMapping(get_default_qat_qconfig({}))")
    if qconfig is not None:
        return qconfig
    return QConfigMapping(get_default_qat_qconfig(backend_of(target)))


def annotate_program(
    traced: fx.GraphModule, program: Program, qconfig: QConfigMapping, target: str | Target | None
) -> Annotations:
    """Annotates the training graph of a program."""
    # in training every node that can is in integers; nothing is chosen
    mapping = qconfig.set_choice(Choice.ALL_INTEGERS)
    with parameters_apart(program.exported):
        canonical = canonicalize_module(onnx_form(program), types_by_run)
    names = Names(traced, program.exported, program.functions)
    left: dict[str, Unannotated] = {}  # ONNX node -> why it stays float
    while True:
        view = View(traced, names, prepare(canonical.copy(), mapping, target))
        found = _annotated(view)
        new = {name: one for one in found.unannotated for name in one.nodes if name not in left}
        if not found.unannotated:
            return _with_reasons(found, left)
        if not new:
            raise UnsupportedError(
                f"'{found.unannotated[0].name}' cannot be annotated, and is quantized whatever "
                f"stays float: {found.unannotated[0].reason}"
            )
        left |= new
        for name in new:
            mapping = mapping.set_node(name, None)


def _annotated(view: View) -> Annotations:
    """Annotations of all that can be annotated, and a note of each that cannot."""
    tensors = Tensors(view)
    operands = Operands(view, tensors)
    unannotated = [*tensors.annotate(), *operands.annotate(), *tensors.annotate_rows()]
    floats = {n: d.reason.words for n, d in view.prepared.decisions.items() if isinstance(d, Float)}
    in_blocks, reasons = groupwise_weights(view)
    trained = {weight.exported for weight in in_blocks}
    floats = {name: reasons.get(name, why) for name, why in floats.items() if name not in trained}
    return Annotations(
        tensors.annotated_groups(),
        (*operands.weights, *in_blocks),
        () if unannotated else tuple(kept_float(view, tensors)),
        floats,
        tuple(unannotated),
        view.prepared.notes,
        () if unannotated else tuple(sums(view, tensors)),
    )


def _with_reasons(found: Annotations, left: dict[str, Unannotated]) -> Annotations:
    """Annotations that say of nodes that could not be annotated why they are float."""
    floats = {
        name: f"'{left[name].name}' has no place in the module: {left[name].reason}"
        if name in left
        else reason
        for name, reason in found.floats.items()
    }
    return replace(found, floats=floats, unannotated=tuple(dict.fromkeys(left.values())))
