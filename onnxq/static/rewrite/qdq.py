"""Carries out a plan with QuantizeLinear and DequantizeLinear nodes that ONNX Runtime fuses.

    float node -> T                  T -> Q -> T_quantized -> DQ -> T_dequantized -> integer node
    integer node -> [Relu dropped]   -> Q [-> Clip on integers] -> T_quantized -> DQ -> every reader
    integer node -> T                a MatMul to float32, its bias inside (see BiasInside)
    W (float initializer)            W_quantized -> DQ -> W_dequantized -> integer node

One sweep in graph order, subgraphs where they stand; every edit is local. (Just over 300 lines: the
sweep and its state are one thing.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.affine import integer_bounds
from onnxq.dtypes import BYTE_BITS
from onnxq.dynamic.check_decisions import does_not_fit
from onnxq.graph.edit import forget_unread, graph_of, graphs_of, home_of, insert_behind
from onnxq.graph.walk import bodies, node_name, value_name, walk
from onnxq.operator import Float, NodePlan, Precision, Rule, Site
from onnxq.operator.nodes import input_at
from onnxq.ort.kept_copy import KEPT_COPY
from onnxq.ort.matmul_add import MatMulAdd, matmul_add
from onnxq.qdq.initializers import Initializers
from onnxq.qdq.write import clip_integers
from onnxq.qparams import QParams
from onnxq.static.insertion.channel_scales import CHANNEL_SCALES_KEY, written_channel_scales
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.plan import Plan
from onnxq.static.rewrite.guards import inputs_to_guard, results_to_guard


def write_qdq(model: ir.Model, plan: Plan) -> None:
    """Rewrites a clone of the canonical model in place."""
    _QdqWriter(model, plan).write()


class _QdqWriter:
    """The state of one sweep: the integer twin of each tensor, and the names in use."""

    def __init__(self, model: ir.Model, plan: Plan) -> None:
        self.plan = plan
        self.model = model
        nodes = [node for node, _ in walk(model.graph)]
        self.tensor_of = {v: value_name(v) for node in nodes for v in node.outputs if v.name}
        self.tensor_of |= {v: value_name(v) for v in model.graph.inputs}
        used = set(self.tensor_of.values()) | {node_name(n) for n in nodes}
        for graph in graphs_of(model, nodes):
            self.tensor_of |= {v: value_name(v) for v in graph.initializers.values()}
        self.new = Initializers(used | set(self.tensor_of.values()))
        decisions = plan.decisions.values()
        self.from_integers = {
            t for d in decisions if isinstance(d, Quantize) and not d.folded_into for t in d.results
        }
        self.folded: dict[str, list[ir.Node]] = {}
        for node in nodes:
            decision = plan.decisions[node_name(node)]
            if isinstance(decision, Quantize) and decision.folded_into:
                self.folded.setdefault(decision.folded_into, []).append(node)
        self.integers_at_run_time = {
            name for name, d in plan.dynamic.items() if d.precision is Precision.DYNAMIC_INT8
        }
        self.integers: dict[str, ir.Value] = {}
        self.float_integers: dict[tuple[str, ir.Graph], ir.Value] = {}
        self.copies: dict[ir.Value, ir.Value] = {}
        self.dead: dict[ir.Node, None] = {}

    def write(self) -> None:
        self._sweep(self.model.graph)
        read = [v for n in self.dead for v in n.inputs if v is not None and v.is_initializer()]
        for node in reversed(self.dead):
            try:
                graph_of(node).remove(node, safe=True)
            except ValueError as error:  # of an edited plan: a node that it is folded into, say
                raise does_not_fit(
                    node_name(node), "the plan takes it out, and writes no result in its place."
                ) from error
        for value in dict.fromkeys((*self.new.replaced, *self.new.quantized, *read)):
            forget_unread(value)

    # --- the sweep

    def _sweep(self, graph: ir.Graph) -> None:
        for node in list(graph):
            for body in bodies(node):
                self._sweep(body)
            if node not in self.dead:
                self._write_node(node, self.plan.decisions[node_name(node)])
        for i, value in enumerate(graph.outputs):
            if self.tensor_of.get(value) in self.from_integers:
                graph.outputs[i] = self._as_output(value, graph)

    def _write_node(self, node: ir.Node, decision: Decision) -> None:
        if isinstance(decision, Float):
            self._float_inputs(node, ())
            if node_name(node) not in self.integers_at_run_time:
                self._guard(node)
        elif decision.folded_into:
            if decision.rule.clamp is not None:
                self.dead[node] = None
        elif decision.rule.clamp is not None and self._lets_all_through(node, decision):
            self.integers[decision.results[0]] = self._integers(input_at(node, 0))
            self.dead[node] = None
        elif decision.rule.lowered:
            self._on_integers(node, decision)
        elif (made := bias_inside(node, self.plan)) is not None:
            self._to_floats(node, decision, made)
        else:
            self._between_qdq(node, decision)

    def _between_qdq(self, node: ir.Node, decision: Quantize) -> None:
        """DQ -> op -> Q."""
        rule = decision.rule
        self._float_inputs(node, rule.activations)
        for slot in rule.activations:
            node.replace_input_with(slot, self._dequantized(input_at(node, slot), node))
        for slot, integers, stem, qparams in self._constants(node, rule):
            node.replace_input_with(slot, self._dequantize_linear(integers, stem, qparams, node))
        for slot, tensor in zip(rule.outputs, decision.results, strict=False):
            raw = node.outputs[slot]
            for folded in self.folded.get(node_name(node), ()):
                raw = raw if _is_clamp(self.plan, folded) else folded.outputs[0]
            self.integers[tensor] = self._quantize_linear(raw, tensor)

    def _on_integers(self, node: ir.Node, decision: Quantize) -> None:
        """The operator's own integer form: ONNX Runtime has the kernel, but no fusion."""
        tensors = dict(zip(decision.rule.outputs, decision.results, strict=False))
        results = self._lowered(node, decision.rule, tensors)
        for slot, (old, new) in enumerate(zip(node.outputs, results, strict=True)):
            if slot in tensors:
                producer = new.producer()
                assert producer is not None, "lower writes nodes"
                self.integers[tensors[slot]] = self._bounded(new, tensors[slot], producer)
                continue
            self._replace(old, new)
        self.dead[node] = None

    def _lets_all_through(self, node: ir.Node, decision: Quantize) -> bool:
        """Whether every integer of its input is within its bounds already, on the same scale."""
        assert decision.rule.clamp is not None
        tensor, result = self.tensor_of[input_at(node, 0)], decision.results[0]
        qparams = self.plan.tensors[tensor]
        limits = (qparams.dtype.qmin, qparams.dtype.qmax)
        if qparams != self.plan.tensors[result] or result in self.plan.integer_bounds:
            return False
        return integer_bounds(decision.rule.clamp, qparams) == limits

    def _to_floats(self, node: ir.Node, decision: Quantize, made: BiasInside) -> None:
        """The MatMul to float32, its bias inside; then Q, where its results are integers."""
        (result,) = self._lowered(node, decision.rule, {}, made.inputs)
        gone = [node, *made.taken]
        self._replace(gone[-1].outputs[0], result)
        for tensor in decision.results:
            self.integers[tensor] = self._quantize_linear(result, tensor)
        self.dead.update(dict.fromkeys(gone))

    def _replace(self, old: ir.Value, new: ir.Value) -> None:
        """The new value takes the place of a tensor that stays float, and its name."""
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.tensor_of[new] = self.tensor_of[old]
        old.name, new.name = None, self.tensor_of[old]

    def _lowered(
        self, node: ir.Node, rule: Rule, tensors: Mapping[int, str], more: Iterable[ir.Value] = ()
    ) -> Sequence[ir.Value]:
        """Results of the operator's own integer form, written ahead of the node."""
        name = node_name(node)
        self._float_inputs(node, rule.activations)
        operator = catalog.find(node.op_type, node.domain)
        assert operator is not None, "a node without operator is float"
        inputs = [*node.inputs, *more]
        in_qparams: list[QParams | None] = [None] * len(inputs)
        out_qparams: list[QParams | None] = [None] * len(node.outputs)
        for slot in rule.activations:
            value = input_at(node, slot)
            inputs[slot] = self._integers(value)
            in_qparams[slot] = self.plan.tensors[self.tensor_of[value]]
        for slot, integers, _, qparams in self._constants(node, rule):
            inputs[slot], in_qparams[slot] = integers, qparams
        for slot, tensor in tensors.items():
            out_qparams[slot] = self.plan.tensors[tensor]
        tape = Tape()
        node_plan = NodePlan(tuple(in_qparams), tuple(out_qparams))
        results = operator.lower(Site(tape, node, inputs, node_plan))
        graph = graph_of(node)
        for value in tape.initializers:
            self.new.adopt(graph, value)
        for new_node in tape.nodes:
            self.model.opset_imports.setdefault(new_node.domain, 1)  # com.microsoft has no other
            new_node.name = (
                name if new_node.name == name else self.new.unique(new_node.name or name)
            )
            for value in new_node.outputs:
                value.name = self.new.unique(value.name or f"{new_node.name}_integers")
        graph.insert_before(node, tape.nodes)
        return results

    def _float_inputs(self, node: ir.Node, activations: Iterable[int]) -> None:
        """Lets slots that are no activations read what an integer node left of their tensor."""
        skipped = set(activations)
        for slot, value in enumerate(node.inputs):
            if value is None or slot in skipped:
                continue
            if self.tensor_of.get(value) in self.from_integers:
                node.replace_input_with(slot, self._dequantized(value, node))

    def _constants(self, node: ir.Node, rule: Rule) -> Iterator[tuple[int, ir.Value, str, QParams]]:
        """(slot, integers, stem of their names, qparams) of weight and bias."""
        name = node_name(node)
        if rule.weight is not None:
            weight = self.plan.weights[name]
            value = input_at(node, rule.weight.slot)
            integers, stem = self.new.integers(
                value,
                weight.qparams,
                weight.integer_limit,
                weight.channel_scale,
                bias_preserving=weight.bias_preserving,
            )
            yield rule.weight.slot, integers, stem, weight.qparams.in_bytes
        if rule.bias is not None and name in self.plan.biases:
            value, bias = input_at(node, rule.bias), self.plan.biases[name]
            integers, stem = self.new.integers(value, bias.qparams, None, bias.channel_scale)
            yield rule.bias, integers, stem, bias.qparams

    def _guard(self, node: ir.Node) -> None:
        """Keeps ONNX Runtime from quantizing by itself a node that is to stay float."""
        slots = inputs_to_guard(node, self.plan)
        if slots:
            guarded = self._copied(input_at(node, slots[0]), node)
            node.replace_input_with(slots[0], guarded)
        if results_to_guard(node, slots):
            for output in node.outputs:
                if self.tensor_of.get(output) in self.plan.tensors:
                    self.copies[output] = self._copied(output, node)

    def _copied(self, value: ir.Value, node: ir.Node) -> ir.Value:
        """The value behind a guard, which stands before the node, or behind it for its results."""
        # between a DequantizeLinear and what is to stay float, so that DQ -> op -> Q does not match
        guard = ir.node(KEPT_COPY, [value], name=self.new.unique(f"{node.name}_stays_float"))
        guard.outputs[0].name = self.new.unique(f"{value.name}_copied")
        guard.outputs[0].type, guard.outputs[0].shape = value.type, value.shape
        if value.producer() is node:
            graph_of(node).insert_after(node, guard)
        else:
            graph_of(node).insert_before(node, guard)
        return guard.outputs[0]

    # --- integer twins

    def _integers(self, value: ir.Value) -> ir.Value:
        """The integer twin of a tensor, made at its producer when it is first asked for."""
        tensor = self.tensor_of[value]
        if tensor not in self.integers:
            qparams = self.plan.tensors[tensor]
            if value.is_initializer():
                self.integers[tensor], _ = self.new.integers(value, qparams)
            else:
                self.integers[tensor] = self._quantize_linear(self.copies.get(value, value), tensor)
        return self.integers[tensor]

    def _quantize_linear(self, raw: ir.Value, tensor: str) -> ir.Value:
        qparams = self.plan.tensors[tensor]
        graph = home_of(raw)
        graph_qparams = self.new.graph_qparams(graph, tensor, qparams)
        node = graph_qparams.quantize(raw, self.new.unique(f"{tensor}_quantize"))
        insert_behind(raw, node, graph)
        return self._bounded(node.outputs[0], tensor, node)

    def _bounded(self, integers: ir.Value, tensor: str, behind: ir.Node) -> ir.Value:
        """The integers of a tensor, named after it, within the bounds of what is folded into it."""
        if tensor in self.plan.integer_bounds:
            integers.name = self.new.unique(f"{tensor}_unbounded")
            integers = self._clip(integers, self.plan.integer_bounds[tensor], tensor, behind)
        integers.name = self.new.unique(f"{tensor}_quantized")
        if tensor in self.plan.channel_scales:
            scales = self.plan.channel_scales[tensor]
            integers.metadata_props[CHANNEL_SCALES_KEY] = written_channel_scales(scales)
        return integers

    def _clip(
        self, integers: ir.Value, bounds: tuple[int, int], tensor: str, behind: ir.Node
    ) -> ir.Value:
        """Clip on integers: exact for Relu and Clip, because rounding keeps order."""
        graph = graph_of(behind)
        dtype = self.plan.tensors[tensor].dtype
        new = self.new.constants_of(graph)
        node = clip_integers(integers, dtype, bounds, f"{tensor}_integer", new)
        node.name = self.new.unique(f"{tensor}_clip")
        graph.insert_after(behind, node)
        return node.outputs[0]

    def _dequantized(self, value: ir.Value, reader: ir.Node | ir.Graph) -> ir.Value:
        """The DQ of a tensor in the graph of its reader: fusion does not cross graphs."""
        tensor = self.tensor_of[value]
        qparams = self.plan.tensors[tensor]
        if value.is_initializer():
            integers, stem = self.new.integers(value, qparams)
            return self._dequantize_linear(integers, stem, qparams, reader)
        return self._dequantize_linear(self._integers(value), tensor, qparams, reader)

    def _dequantize_linear(
        self, integers: ir.Value, stem: str, qparams: QParams, reader: ir.Node | ir.Graph
    ) -> ir.Value:
        graph = graph_of(reader) if isinstance(reader, ir.Node) else reader
        if (stem, graph) in self.float_integers:
            return self.float_integers[stem, graph]
        graph_qparams = self.new.graph_qparams(graph, stem, qparams)
        name = self.new.unique(f"{stem}_dequantize")
        node = graph_qparams.dequantize(integers, name, self.new.unique(f"{stem}_dequantized"))
        if integers.is_initializer() and isinstance(reader, ir.Node):
            graph.insert_before(reader, node)  # the first of its readers, in graph order
        else:
            insert_behind(integers, node, graph)
        self.float_integers[stem, graph] = node.outputs[0]
        return node.outputs[0]

    # --- small things

    def _as_output(self, value: ir.Value, graph: ir.Graph) -> ir.Value:
        """The DQ of a graph output, under the output's own name."""
        tensor = self.tensor_of[value]
        result = self._dequantized(value, graph)
        if value.name == tensor:
            value.name = self.new.unique(f"{tensor}_float")
        result.name = tensor
        return result


def _is_clamp(plan: Plan, node: ir.Node) -> bool:
    decision = plan.decisions[node_name(node)]
    return isinstance(decision, Quantize) and decision.rule.clamp is not None


@dataclass(frozen=True, slots=True, eq=False)
class BiasInside:
    """A MatMul to float32 that is written out."""

    found: MatMulAdd | None

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Inputs of the MatMul behind its own two."""
        return () if self.found is None else (self.found.bias,)

    @property
    def taken(self) -> tuple[ir.Node, ...]:
        """Nodes that go with the float MatMul."""
        return () if self.found is None else (self.found.add,)


def bias_inside(node: ir.Node, plan: Plan) -> BiasInside | None:
    """The node's MatMul with all that is added to it; None: ONNX Runtime fuses it by itself.

        DQ -> MatMul -> Add(bias)      becomes     MatMulIntegerToFloat with the bias inside

    ONNX Runtime makes a Gemm of a MatMul and an Add where it knows the sizes, and computes it in
    float32 unless a Q follows. Where it does not know them, the MatMul alone is on integers, and
    the Add a float node of its own. Time over that of the kernel with the bias inside, onnxruntime
    1.31 on AVX512, 32 to 512 rows, widths 256 to 3072 (benchmarks/results/fusions.md):

        MatMulIntegerToFloat, Add           1.1 to 1.5
        QGemm with a float32 result         1.0 to 1.7
        QGemm, DequantizeLinear             1.1 to 1.8
        float MatMul, Add                   2.9 to 9.2

    Its float bias is not rounded, and the results are those of MatMul and Add bit for bit. A Gemm
    of the float model stays one, as QGemm: it adds its bias in integers, so that every machine has
    the same results, and most have one row, where neither precision is faster.

    An Add that stays float is taken along where the result is float32: the numbers are the same.
    """
    found, decision = matmul_add(node), plan.decisions[node_name(node)]
    assert isinstance(decision, Quantize), "a node in integers"
    if found is None or decision.rule.weight is None or not _has_kernel(node, decision, plan):
        return None
    behind = plan.decisions[node_name(found.add)]
    if isinstance(behind, Quantize) and behind.folded_into == node_name(node):
        return None if found.becomes_gemm and decision.results else BiasInside(found)
    if decision.results or not (found.becomes_gemm or found.adds_vector):
        return None
    return BiasInside(found) if found.adds_vector else BiasInside(None)


def _has_kernel(node: ir.Node, decision: Quantize, plan: Plan) -> bool:
    """Whether ONNX Runtime has the MatMul of such types: two of 8 bits, int8 with int8 alone."""
    x = plan.tensors[value_name(input_at(node, decision.rule.activations[0]))]
    weight = plan.weights[node_name(node)].qparams
    if {x.dtype.bits, weight.dtype.bits} != {BYTE_BITS}:
        return False
    return weight.dtype.signed or not x.dtype.signed
