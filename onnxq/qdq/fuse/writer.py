"""Writes what the nodes of a QDQ graph compute on integers: one sweep in graph order."""

import json
import math
from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.graph.edit import FreeNames, forget_unread, graph_of, merge_equal, sole_reader
from onnxq.operator import Float, OpCategory, Precision, Site
from onnxq.operator.nodes import input_at
from onnxq.operator.site import MICROSOFT
from onnxq.ort import facts
from onnxq.ort.matmul_add import matmul_add
from onnxq.qdq.fuse.float_weights import quantize_float_weights, round_constants
from onnxq.qdq.fuse.fusion import Flattened, Fusion, Kept
from onnxq.qdq.fuse.judge import judge, site
from onnxq.qdq.fuse.scales import Int8Activations, Scales, seen, view_of
from onnxq.qdq.fuse.signed import shift_to_uint8
from onnxq.qdq.read import Unread, from_dequantize, is_dequantize, is_quantize
from onnxq.qdq.write import graph_qparams_of, quantize_behind
from onnxq.qparams import PerTensor, QParams

INTEGERS_OPSET = 13  # before, MaxPool, Clip and the like are defined for floats only
QPARAMS_KEY = "onnxq.qparams"
"""Metadata of integers `<tensor>_quantized` where there is no `<tensor>_scale`: their QParams."""


class Writer:
    """The state of one sweep over a clone, which it changes in place."""

    def __init__(self, model: ir.Model, int8: Int8Activations) -> None:
        self.integer: dict[str, tuple[str, ...]] = {}
        self.kept: dict[str, str] = {}
        self.tables: list[str] = []
        self._model = model
        self._int8 = int8
        self._scales = Scales(int8)
        self._names = FreeNames(model)
        self._opset = model.opset_imports.get("", INTEGERS_OPSET)
        self._dead: list[ir.Node] = []
        self._made: dict[ir.Value, tuple[ir.Value | None, QParams | None]] = {}
        for node in model.graph.all_nodes():  # what an attribute means depends on it
            node.version = model.opset_imports.get(node.domain)
        for graph in list(model.graphs()):
            round_constants(graph, self._scales, self._names)

    def quantize_float_weights(self) -> None:
        """Quantizes the float weights between DQ and Q, once Q and DQ are where they move to."""
        for graph in list(self._model.graphs()):
            merge_equal(graph, self._said)
            move_quantizers(graph, self._scales, self._names)
            quantize_float_weights(graph, self._scales, self._names)

    def write(self) -> None:
        """Fuses every graph of the model."""
        graphs = list(self._model.graphs())
        for graph in graphs:
            merge_equal(graph, self._said)
            move_quantizers(graph, self._scales, self._names)
        if self._int8 is Int8Activations.SHIFTED:
            shift_to_uint8(self._model, self._names)
        self._scales = Scales(self._int8)
        for graph in graphs:
            for node in list(graph):
                self._visit(node)
        self._clean()
        self._note_qparams()
        if any(node.domain == MICROSOFT for node in self._model.graph.all_nodes()):
            self._model.opset_imports.setdefault(MICROSOFT, 1)

    def _said(self, node: ir.Node) -> Hashable | None:
        """By what ONNX Runtime merges Q and DQ, as common subexpressions, before it fuses."""
        if not (is_quantize(node) or is_dequantize(node)):
            return None
        qparams = self._scales.of(node)
        if isinstance(qparams, Unread):
            return None
        return node.op_type, node.inputs[0], qparams

    def _visit(self, node: ir.Node) -> None:
        if is_quantize(node) or is_dequantize(node) or node.name in self.integer:
            return
        verdict = judge_biased(node, self._scales)
        if verdict is None:
            verdict = judge(node, self._scales)
        if isinstance(verdict, Fusion):
            verdict = self._fuse(verdict)
        if isinstance(verdict, Kept):
            self.kept[str(node.name)] = verdict.reason

    def _fuse(self, site: Fusion) -> Kept | None:
        if (
            site.rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP)
            and self._opset < INTEGERS_OPSET
        ):
            return Kept(f"{site.node.op_type} takes 8-bit integers from opset {INTEGERS_OPSET} on")
        tape = Tape()
        inputs = list(site.inputs)
        if site.new_bias is not None:
            slot, integers = site.new_bias
            value = inputs[slot]
            assert value is not None, "it is the bias that the integers are of"
            inputs[slot] = tape.initializer(ir.tensor(integers), name=f"{value.name}_quantized")
        if site.flattened is not None:
            inputs[0] = _reshaped(tape, site, inputs[0], site.flattened.matrix, "flat")
        try:
            results = site.operator.lower(Site(tape, site.view, inputs, site.plan))
        except (UnsupportedError, ShapeError) as error:
            return Kept(str(error))
        if site.flattened is not None:
            results = [_reshaped(tape, site, results[0], site.flattened.result, "batches")]
        if any(is_dequantize(node) for node in tape.nodes):
            return Kept(
                f"ONNX Runtime has no integer kernel for {site.node.op_type}; "
                "it computes in float32 between integers"
            )
        self._insert(site, tape, results)
        name = str(site.node.name)
        self.integer[name] = tuple(node.op_type for node in tape.nodes)
        self.integer |= {str(node.name): () for node in site.absorbed}
        if site.rule.precision is Precision.FLOAT_BETWEEN_QDQ:
            self.tables.append(name)
        return None

    def _insert(self, site: Fusion, tape: Tape, results: Sequence[ir.Value]) -> None:
        """Puts the tape in place of the node, its quantizers and what is between them."""
        node, graph = site.tail, graph_of(site.tail)
        self._name_values(site.node, tape, results)
        graph.insert_before(node, tape.nodes)
        for made in tape.nodes:
            if made.name and made.name != site.node.name:
                made.name = self._names.node(made.name)
        self._register(graph, tape)
        for slot, (old, new) in enumerate(zip(node.outputs, results, strict=True)):
            quantizers = site.quantizers.get(slot)
            if quantizers is None:
                _replace(old, new)
                continue
            first, *others = quantizers
            for other in others:
                other.outputs[0].replace_all_uses_with(first.outputs[0], replace_graph_outputs=True)
            _replace(first.outputs[0], new)
            self._dead.extend(quantizers)
            self._made[new] = (first.inputs[1], site.plan.outputs[slot])
        self._dead += dict.fromkeys([*site.absorbed, site.node])

    def _name_values(self, node: ir.Node, tape: Tape, results: Sequence[ir.Value]) -> None:
        """Names what stands between the new nodes: a graph names by itself, as other graphs do."""
        between = [v for new in tape.nodes for v in new.outputs if v not in results and not v.name]
        for value in between:
            value.name = self._names.value(f"{node.name}_integers")

    def _register(self, graph: ir.Graph, tape: Tape) -> None:
        """Registers new initializers; scales and zero points of the QDQ graph are used again."""
        for value in tape.initializers:
            assert isinstance(value.const_value, ir.Tensor)
            array = value.const_value.raw
            known = self._scales.initializer(array)
            if known is not None:
                value.replace_all_uses_with(known)
                continue
            value.name = self._names.value(str(value.name))
            value.const_value.name = value.name
            graph.register_initializer(value)
            if self._scales.owns(array) and graph is self._model.graph:
                self._scales.note(array, value)

    def _clean(self) -> None:
        """Takes out what nothing reads any more: nodes, then DQ nodes, then initializers."""
        read = dict.fromkeys(v for node in self._dead for v in node.inputs if v is not None)
        for node in self._dead:  # of each site, readers stand before what they read
            graph_of(node).remove(node, safe=True)
        dequantizers = dict.fromkeys(p for v in read if is_dequantize(p := v.producer()) and p)
        for node in dequantizers:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                read |= {v: None for v in node.inputs if v is not None}
                graph_of(node).remove(node, safe=True)
        for value in read:
            forget_unread(value)

    def _note_qparams(self) -> None:
        """Notes the qparams of new integers where no scale in the file is named after them."""
        for integers, (scale, qparams) in self._made.items():
            name = f"{str(integers.name).removesuffix('_quantized')}_scale"
            found = scale is not None and scale.is_initializer() and scale.name == name
            if qparams is not None and not found:
                integers.metadata_props[QPARAMS_KEY] = json.dumps(qparams.to_dict())


def _replace(old: ir.Value, new: ir.Value) -> None:
    """`new` takes over the name, the type and the readers of `old`."""
    name = old.name
    new.type = new.type or old.type
    new.shape = old.shape if new.shape is None else new.shape
    new.metadata_props.update(old.metadata_props)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name, new.name = None, name


def _reshaped(
    tape: Tape, site: Fusion, value: ir.Value | None, shape: tuple[int, ...], suffix: str
) -> ir.Value:
    """The integers in another shape."""
    assert value is not None
    stem = f"{site.node.name}_{suffix}"
    sizes = tape.initializer(ir.tensor(np.array(shape, np.int64)), name=f"{stem}_shape")
    reshaped = tape.op("Reshape", [value, sizes], name=f"{stem}_reshape")
    reshaped.type, reshaped.shape = value.type, ir.Shape(shape)
    return reshaped


# --- MatMul with an Add of a bias behind it, fused as the Gemm that ONNX Runtime makes of them
#
# The Gemm is fused where a QuantizeLinear follows; else it computes in float32, although MatMul
# alone would have been fused. onnxq.ort.matmul_add has the conditions.


def judge_biased(node: ir.Node, scales: Scales) -> Fusion | Kept | None:
    """Verdict on a MatMul with a bias; None where the node is none."""
    found = matmul_add(node)
    if found is None or not found.becomes_gemm:
        return None
    if not all(v is not None and from_dequantize(v, node) for v in node.inputs):
        return None
    add, a, b, bias = found.add, input_at(node, 0), input_at(node, 1), found.bias
    gemm = catalog.find("Gemm")
    assert gemm is not None, "operators/gemm.py"
    view = view_of(add, "Gemm", [seen(value, scales) for value in (a, b, bias)])
    view.name = node.name
    flattened = _flattened(a, b) if found.is_flattened else None
    if flattened is not None:
        input_at(view, 0).shape = ir.Shape(flattened.matrix)
        view.outputs[0].shape = ir.Shape([flattened.matrix[0], flattened.result[-1]])
    rule = gemm.fused_rule(view)
    if isinstance(rule, Float):
        return Kept(rule.reason.words)
    made = site(node, add, [a, b, bias], gemm, view, rule, scales)
    if isinstance(made, Kept):
        return Kept(f"with the Add behind it, ONNX Runtime makes a Gemm of it: {made.reason}")
    if flattened is not None and made.absorbed:
        if made.new_bias is not None:
            return Kept(
                "with the Add behind it, ONNX Runtime makes a Gemm of it, which it does not fuse "
                f"with {made.absorbed[0].op_type} behind a Reshape"
            )
        made.give_floats()  # its bias is int32: no Q is needed
    made.flattened = flattened
    made.absorbed.append(add)
    return made


def _flattened(a: ir.Value, b: ir.Value) -> Flattened:
    """The shapes around the Gemm, where A is no matrix."""
    assert a.shape is not None
    assert b.shape is not None
    *batches, inner, columns = (int(size) for size in (*a.shape, b.shape[1]))
    return Flattened((math.prod(batches), inner), (*batches, columns))


# --- Q and DQ moved past nodes that only move data, as ONNX Runtime does before it fuses
#
#     Conv -> MaxPool -> Q        becomes     Conv -> Q -> DQ -> MaxPool -> Q
#     DQ -> Reshape -> Conv       becomes     DQ -> Reshape -> Q -> DQ -> Conv
#
# Exact: moving data, or taking a maximum, before or after rounding gives the same integers. What
# gains is the Conv, which now stands between DQ and Q. ONNX Runtime's QDQPropagationTransformer.


def move_quantizers(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Inserts Q -> DQ where a Q or DQ of the graph moves to."""
    for node in list(graph):
        if is_quantize(node):
            _move_up(node, scales, names)
    for node in list(graph):
        if is_dequantize(node):
            _move_down(node, scales, names)


def _move_up(quantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    qparams = _one_scale(quantize, scales)
    if qparams is None:
        return
    graph_qparams = graph_qparams_of(quantize, qparams)
    value = quantize.inputs[0]
    while value is not None and (passed := _alone(value, quantize)) is not None:
        value = passed.inputs[0]
        source = None if value is None else value.producer()
        if value is None or source is None or source.graph is not quantize.graph:
            return
        if is_dequantize(source) or sole_reader(value) is None:
            return
        quantize_behind(value, graph_qparams, names, [(passed, 0)])


def _move_down(dequantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    qparams = _one_scale(dequantize, scales)
    if qparams is None:
        return
    graph_qparams = graph_qparams_of(dequantize, qparams)
    work = [dequantize.outputs[0]]  # several readers: each has a DQ of its own in ONNX Runtime
    while work:
        value = work.pop()
        for reader in [use.node for use in value.uses()]:
            if not facts.of(reader).moved_past or reader.graph is not dequantize.graph:
                continue
            result = reader.outputs[0]
            uses = [(u.node, u.idx) for u in result.uses() if not is_quantize(u.node)]
            if uses and not result.is_graph_output():
                work.append(quantize_behind(result, graph_qparams, names, uses))


def _one_scale(node: ir.Node, scales: Scales) -> QParams | None:
    """The qparams of a Q or DQ where they are constant, one for the tensor."""
    qparams = scales.of(node)
    if isinstance(qparams, Unread) or qparams.granularity != PerTensor():
        return None
    return qparams


def _alone(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """The node that only moves data and makes the value, which nobody else reads."""
    producer = value.producer()
    if producer is None or not facts.of(producer).moved_past or producer.graph is not reader.graph:
        return None
    return None if sole_reader(value) is None else producer
