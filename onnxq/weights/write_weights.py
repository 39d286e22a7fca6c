"""Carries out a plan of weights in groups: each layer reads its integers, and no float weight.

`GroupwiseWriter` writes com.microsoft MatMulNBits; `DequantizeWriter` is for any runtime:
DequantizeLinear ahead of the MatMul, opset 21.

    Y = X W    ->    MatMul(X, DequantizeLinear(integers, scales, zero_points; axis, block_size))

Integers have types of their own (uint4, int4 ...), which opset 21 has, and opset 25 of 2 bits. ONNX
Runtime makes MatMulNBits of some of these when it loads the model, at accuracy level 4
(`reference.groupwise_matmul` says of which); it dequantizes the others in every run.
"""

import enum
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.core.collector import without_collector
from onnxq.core.packing import unpacked_rows
from onnxq.dynamic.tied_integers import float_matrices, store_tied_integers_once
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.edit import (
    FreeNames,
    forget_unread,
    graph_of,
    new_constant,
    new_initializer,
    replace,
)
from onnxq.graph.folded import note_cast, write_as_given
from onnxq.graph.hashing import model_hash
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import derived, renamed
from onnxq.operator import Float
from onnxq.operator.nodes import find_input, input_at, shape, sizes
from onnxq.operator.site import MICROSOFT
from onnxq.ort.node_kinds import GATHER_BLOCK_QUANTIZED, MATMUL_NBITS
from onnxq.qdq.compact import compact, names_in
from onnxq.qparams.group_spec import is_scrambled
from onnxq.qparams.groups import INT8_ACCURACY, INTEGERS, SCALES
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.weights.embeddings import LOOKUP_ND, is_lookup, is_stack
from onnxq.weights.experts import FC1, FC2, part_name
from onnxq.weights.reasons import MisreadByRuntime, ReadByMicrosoftAlone
from onnxq.weights.weight_plan import Groupwise, WeightPlan


class StoredIntegers:
    """Initializers of integers, scales and zero points, by graph and by what they are of."""

    def __init__(self) -> None:
        self._made: dict[tuple[ir.Graph, str], Sequence[ir.Value]] = {}

    def of(
        self, graph: ir.Graph, decision: Groupwise, make: Callable[[], Sequence[ir.Value]]
    ) -> Sequence[ir.Value]:
        """Initializers of the graph; those that are not there yet are made."""
        key = (graph, decision.stored_as)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


MATRIX = 2
GEMM_BIAS = 2  # slot
BIAS_SLOT = 5  # of MatMulNBits; 4 is g_idx
FLOAT_ACCURACY = 0
"""accuracy_level: activations stay float32; or each group of a row becomes int8."""
ACCURACIES = (FLOAT_ACCURACY, INT8_ACCURACY)


class GroupwiseWriter:
    """Writer of one model's linear layers; nodes of a graph that read one weight share integers."""

    def __init__(self, model: ir.Model, accuracy: int = INT8_ACCURACY) -> None:
        self._model = model
        self._names = FreeNames(model)
        self._accuracy = accuracy
        self._stored = StoredIntegers()

    def write(
        self, node: ir.Node, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> None:
        """Replaces a node."""
        self._model.opset_imports.setdefault(MICROSOFT, 1)
        weight = input_at(node, decision.slot)
        graph = graph_of(node)
        stored = self._stored.of(graph, decision, lambda: self._add(node, tensors, decision))
        write = self._rows if is_lookup(node) or is_stack(node) else self._linear
        made = write(node, stored, decision)
        replace(node, made, self._names)
        made.name, node.name = node.name, None
        forget_unread(weight)

    def write_mixture(
        self,
        node: ir.Node,
        integers: Mapping[str, Mapping[str, ir.TensorProtocol]],
        decisions: Mapping[str, Groupwise],
    ) -> None:
        """Replaces a mixture of experts by QMoE."""
        self._model.opset_imports.setdefault(MICROSOFT, 1)
        name, slots = node_name(node), list[ir.Value | None](node.inputs[:2])
        points: list[ir.Value | None] = []
        for slot in (FC1, FC2):
            parts = [part_name(name, expert, slot) for expert in range(sizes(node, slot)[0])]
            arrays = [integers[part] for part in parts]
            made = [
                self._stacked(node, slot, kind, [each[kind] for each in arrays])
                for kind in arrays[0]
            ]
            slots += [*made[:2], find_input(node, slot + 1)]
            points += made[2:] or [None]
        slots += [None] * 3 + points
        if not node.attributes.get_int("normalize_routing_weights", 0):
            # QMoE takes the softmax of the chosen experts alone, unless it is given their shares
            shares = ir.node("Softmax", [input_at(node, 1)], {"axis": 1})
            slots += [None, self._inserted(node, shares)]
        spec = decisions[parts[0]].spec
        attributes = {"expert_weight_bits": spec.bits, "block_size": spec.group_size}
        made_ = ir.node("QMoE", slots, domain=MICROSOFT, attributes=attributes)
        made_.attributes.update({a.name: a for a in node.attributes.values()})
        weights = [input_at(node, slot) for slot in (FC1, FC2)]
        replace(node, made_, self._names)
        made_.name, node.name = node.name, None
        for weight in weights:
            forget_unread(weight)

    def _stacked(
        self, node: ir.Node, slot: int, kind: str, parts: Sequence[ir.TensorProtocol]
    ) -> ir.Value:
        """A new initializer: arrays of all experts, (experts, outputs, numbers of a row)."""
        experts, outputs, _ = sizes(node, slot)
        shape = (experts, outputs, parts[0].size // outputs)
        name = self._names.value(f"{value_name(input_at(node, slot))}_{kind}")
        tensor = derived(lambda: np.stack([p.numpy() for p in parts]), parts[0].dtype, shape, name)
        return new_initializer(graph_of(node), name, tensor)

    def _add(
        self, node: ir.Node, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> list[ir.Value]:
        """New initializers that hold the integers."""
        stack = sizes(node, 0)[:-1] if is_stack(node) else (decision.outputs,)
        made = []
        for kind, tensor in tensors.items():
            name = self._names.value(f"{decision.embedding or decision.tensor}_{kind}")
            stored = renamed(tensor, name)
            if decision.embedding and not (kind == INTEGERS and decision.tied):
                stored = _shaped(tensor, (*stack, tensor.size // decision.outputs), name)
            if kind == SCALES and decision.given:
                stored = _as_half(stored)
            made.append(new_initializer(graph_of(node), name, stored))
        return made

    def _rows(self, node: ir.Node, stored: Sequence[ir.Value], decision: Groupwise) -> ir.Node:
        """The node that takes rows of an embedding.

        Integers that a linear layer shares have its shape.
        """
        integers, *others = stored
        if decision.tied:
            shape = np.array([decision.outputs, -1], np.int64)
            name = self._names.value(f"{decision.embedding}_rows")
            integers = self._inserted(
                node, ir.node("Reshape", [integers, new_constant(node, name, shape)])
            )
            integers.type = ir.TensorType(ir.DataType.UINT8)
        attributes = {
            "bits": decision.spec.bits,
            "block_size": decision.spec.group_size,
            "gather_axis": 0,
            "quantize_axis": len(sizes(node, 0)) - 1,
        }
        ids = input_at(node, 1)
        if node.op_type == LOOKUP_ND:
            last = new_constant(node, self._names.value(f"{node_name(node)}_last"), np.array([-1]))
            ids = self._inserted(node, ir.node("Squeeze", [ids, last]))
            ids.type = input_at(node, 1).type
        slots = [integers, ids, *others]
        return ir.node(GATHER_BLOCK_QUANTIZED, slots, attributes, domain=MICROSOFT)

    def _linear(self, node: ir.Node, stored: Sequence[ir.Value], decision: Groupwise) -> ir.Node:
        """The last node of what stands for the float one; those ahead of it are inserted."""
        left = decision.slot == 0
        x = input_at(node, 1 - decision.slot)
        turned = left != bool(node.attributes.get_int("transB" if left else "transA", 0))
        if turned:
            x = self._inserted(node, _turn(x, _rank(node, 1 - decision.slot)))
        bias = find_input(node, GEMM_BIAS)
        inside = bias is not None and not left and _is_vector(node, decision)
        slots: list[ir.Value | None] = [x, *stored]
        if inside:
            slots += [None] * (BIAS_SLOT - len(slots)) + [bias]
        made = self._node(slots, decision)
        if left:
            made = _turn(self._inserted(node, made), _rank(node, 1 - decision.slot))
        if bias is None or inside:
            return made
        added = bias
        if node.attributes.get_float("beta", 1.0) != 1.0:
            added = self._inserted(node, self._times_beta(node, bias))
        return ir.node("Add", [self._inserted(node, made), added])

    def _node(self, slots: Sequence[ir.Value | None], decision: Groupwise) -> ir.Node:
        attributes = {
            "K": decision.inputs,
            "N": decision.outputs,
            "bits": decision.spec.bits,
            "block_size": decision.spec.group_size,
            "accuracy_level": self._accuracy,
        }
        return ir.node(MATMUL_NBITS, slots, attributes, domain=MICROSOFT)

    def _times_beta(self, node: ir.Node, value: ir.Value) -> ir.Node:
        factor = np.float32(node.attributes.get_float("beta", 1.0))
        name = self._names.value(f"{node_name(node)}_beta")
        return ir.node("Mul", [value, new_constant(node, name, np.asarray(factor))])

    def _inserted(self, node: ir.Node, made: ir.Node) -> ir.Value:
        """The result of a node that is put before another one, both named."""
        stem = f"{node_name(node)}_{made.op_type.lower()}"
        made.name = self._names.node(stem)
        (result,) = made.outputs
        result.name = self._names.value(f"{stem}_output")
        result.type = ir.TensorType(ir.DataType.FLOAT)
        graph_of(node).insert_before(node, made)
        return result


def _as_half(scales: ir.TensorProtocol) -> ir.TensorProtocol:
    """The scales, to be written as float16 where the file had them so."""
    half = scales.numpy().astype(np.float16)
    is_same = np.array_equal(half.astype(np.float32), scales.numpy())
    return note_cast(ir.tensor(half), scales) if is_same else scales


def _shaped(tensor: ir.TensorProtocol, shape: tuple[int, ...], name: str) -> ir.TensorProtocol:
    return derived(lambda: np.asarray(tensor.numpy()).reshape(shape), tensor.dtype, shape, name)


def _turn(x: ir.Value, rank: int) -> ir.Node:
    """Transpose of the last two axes."""
    return ir.node("Transpose", [x], {"perm": [*range(rank - 2), rank - 1, rank - 2]})


def _rank(node: ir.Node, slot: int) -> int:
    """Rank of an operand that is to be turned: known of MatMul's, and 2 of Gemm's."""
    return len(shape(node, slot) or ()) or MATRIX


def _is_vector(node: ir.Node, decision: Groupwise) -> bool:
    """Whether Gemm's C is one constant number per output, added as it is."""
    bias = input_at(node, GEMM_BIAS)
    constant = bias.const_value is not None and not bias.is_graph_input()
    plain = node.attributes.get_float("beta", 1.0) == 1.0
    return constant and plain and shape(node, GEMM_BIAS) == (decision.outputs,)


def misread(plan: WeightPlan) -> dict[str, Float]:
    """Nodes that this format has nothing for, or that ONNX Runtime would compute wrongly."""
    floats = {n: Float(ReadByMicrosoftAlone()) for n, d in plan.nodes.items() if d.is_foreign}
    return floats | {
        name: Float(MisreadByRuntime(d.spec.bits, d.outputs))
        for name, d in plan.quantized.items()
        if d.inputs_first and is_scrambled(d.spec.bits, d.outputs)
    }


class DequantizeWriter:
    """Writer of one model's weights; nodes that read one weight in one graph share its integers."""

    def __init__(self, model: ir.Model) -> None:
        self._names = FreeNames(model)
        self._stored = StoredIntegers()

    def write(
        self, node: ir.Node, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> None:
        """Lets a node read its weight from integers."""
        weight = input_at(node, decision.slot)
        attributes = {
            "axis": 0 if decision.inputs_first else 1,
            "block_size": decision.spec.group_size,
        }
        name = self._names.node(f"{node_name(node)}_dequantize")
        graph = graph_of(node)
        stored = self._stored.of(graph, decision, lambda: self._add(graph, tensors, decision))
        made = ir.node("DequantizeLinear", stored, attributes, name=name)
        (reals,) = made.outputs
        reals.name = self._names.value(f"{value_name(weight)}_dequantized")
        reals.type, reals.shape = weight.type, weight.shape
        graph.insert_before(node, made)
        node.replace_input_with(decision.slot, reals)
        forget_unread(weight)

    def _add(
        self, graph: ir.Graph, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> list[ir.Value]:
        """New initializers that hold the integers."""
        return [
            new_initializer(graph, name, _laid_out(kind, tensor, decision, name))
            for kind, tensor in tensors.items()
            for name in (self._names.value(f"{decision.tensor}_{kind}"),)
        ]


def _laid_out(
    kind: str, tensor: ir.TensorProtocol, decision: Groupwise, name: str
) -> ir.TensorProtocol:
    """Integers, scales or zero points in the layout of the float weight.

    Computed when it is read.
    """
    spec = decision.spec
    width = decision.inputs if kind == INTEGERS else spec.groups(decision.inputs)
    shape = (decision.outputs, width)
    dtype = ir.DataType.FLOAT if kind == SCALES else ir.DataType[spec.dtype.onnx]

    def compute() -> Array:
        array = np.asarray(tensor.numpy()).reshape(decision.outputs, -1)
        if kind != SCALES:
            array = unpacked_rows(array, spec.bits)[:, :width]
            if spec.symmetric:
                array = (array.astype(np.int16) - spec.middle).astype(np.int8)
        return array.T if decision.inputs_first else array

    return derived(compute, dtype, shape[::-1] if decision.inputs_first else shape, name)


class WeightFormat(enum.Enum):
    """How linear layers with group-wise weights are written."""

    MATMULNBITS = "matmulnbits"
    """com.microsoft MatMulNBits."""
    QDQ = "qdq"
    """DequantizeLinear ahead of the float MatMul, in operators of ai.onnx alone: opset 21."""


FORMAT = "dynamic"
"""Weights alone are quantized, and activations, where they are, when the model runs."""


BLOCKS_OPSET = 21
"""First opset whose DequantizeLinear has blocks."""


@without_collector()
def write_weights(
    model: ir.Model,
    plan: WeightPlan,
    integers: Mapping[str, Mapping[str, ir.TensorProtocol]],
    accuracy: int,
    format: WeightFormat = WeightFormat.MATMULNBITS,
) -> QuantizedModel:
    """The model with weights in groups; the float model stays as it is and shares what it can."""
    written = model.clone()
    writer: GroupwiseWriter | DequantizeWriter
    if format is WeightFormat.QDQ:
        needed = max((d.spec.dtype.min_opset for d in plan.quantized.values()), default=0)
        upgrade_opset(written, max(needed, BLOCKS_OPSET))
        writer = DequantizeWriter(written)
    else:
        writer = GroupwiseWriter(written, accuracy)
    for node, _ in list(walk(written.graph)):
        decision = plan.quantized.get(node_name(node))
        if decision is not None:
            writer.write(node, integers[node_name(node)], decision)
        elif node_name(node) in plan.mixtures and isinstance(writer, GroupwiseWriter):
            writer.write_mixture(node, integers, plan.quantized)
    write_as_given(written)
    store_tied_integers_once(float_matrices(written))
    compact(written, names_in(model))
    written.metadata_props.update(
        {"onnxq.float_model_hash": model_hash(model), "onnxq.target": "any", FORMAT_KEY: FORMAT}
    )
    return QuantizedModel.of(written)
