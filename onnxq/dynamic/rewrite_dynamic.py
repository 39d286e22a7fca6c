"""Carries out a dynamic plan: each quantized node becomes what its operator's lowering writes.

    W (float initializer)  ->  W_quantized (or W_half), beside it, once per layout and qparams
    node(x, W)             ->  lower_dynamic(x, W_quantized), float in, float out

Subgraphs are visited where they stand. Integers, and what is computed from them alone, move to the
main graph (`Outermost`). A float weight goes when nothing reads it any more.

One DynamicQuantizeLinear for all readers of a tensor, where ONNX Runtime still fuses it.

    x -> DQL -> MatMulInteger (Q)          x -> DQL -> MatMulInteger (Q), (K), (V)
    x -> DQL -> MatMulInteger (K)    =>
    x -> DQL -> MatMulInteger (V)

ONNX Runtime then runs one DynamicQuantizeLinear and three MatMulIntegerToFloat. It merges equal
nodes before it fuses, though: where two weights have the same scale, their x_scale * w_scale is one
Mul with two readers, and neither MatMul is fused. Scalar constants are told apart by value only,
so the second such scale is written as a vector, one (equal) number per column, which is not merged.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.core.collector import without_collector
from onnxq.dynamic.check_decisions import check_decisions
from onnxq.dynamic.dynamic_decision import DynamicPlan, DynamicWeightPlan, QuantizeDynamic
from onnxq.dynamic.dynamic_weights import can_turn, permuted, unpermuted
from onnxq.dynamic.tied_integers import float_matrices, store_tied_integers_once
from onnxq.errors import CalibrationError
from onnxq.graph import edit
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.folded import write_as_given
from onnxq.graph.hashing import model_hash
from onnxq.graph.walk import bodies, node_name, value_name, walk
from onnxq.graph.weights import constant
from onnxq.operator import DynamicSite
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.ort.add_norm import write_sums
from onnxq.qdq.compact import compact, names_in
from onnxq.qdq.initializers import Initializers
from onnxq.qdq.narrow import narrow_types, store_narrow
from onnxq.qdq.read import is_dequantize
from onnxq.qdq.write import min_opset
from onnxq.qparams import PerBlock, QParams
from onnxq.quantized.quantized_model import QuantizedModel

FORMAT = "dynamic"

Perm = tuple[int, ...] | None
"""Order of a weight's axes in which its integers are stored; None: as they are."""
QUANTIZER, INTEGER_MATMUL = "DynamicQuantizeLinear", "MatMulInteger"
_INTEGERS, _SCALE = 0, 1  # outputs of the quantizer


@without_collector()
def rewrite_dynamic(
    model: ir.Model, plan: DynamicPlan, known_hash: str | None = None
) -> QuantizedModel:
    """The dynamically quantized model; the float model stays as it is and shares what it can."""
    own = known_hash or model_hash(model)
    if plan.model_hash != own:
        raise CalibrationError(
            f"the plan is of model {plan.model_hash[:12]}, this one is {own[:12]}; "
            "make the plan from this model."
        )
    check_decisions(model, plan.quantized)
    rewritten = model.clone()
    write_dynamic(rewritten, plan.quantized)
    write_as_given(rewritten)
    store_tied_integers_once(float_matrices(rewritten))
    upgrade_opset(rewritten, opset_needed(plan.quantized))
    compact(rewritten, names_in(model))
    store_narrow(rewritten, narrow_types(_stored_qparams(plan.quantized)))
    rewritten.metadata_props.update(
        {
            "onnxq.target": plan.target,
            "onnxq.float_model_hash": plan.model_hash,
            "onnxq.objective": plan.objective.value,
        }
    )
    if plan.quantized:  # else it is a float model still, which may be quantized
        write_sums(rewritten)
        rewritten.metadata_props[FORMAT_KEY] = FORMAT
    return QuantizedModel.of(rewritten)


def opset_needed(decisions: Mapping[str, QuantizeDynamic]) -> int:
    """The ai.onnx opset that has the types and blocks of these decisions."""
    return max(map(min_opset, _stored_qparams(decisions)), default=0)


def _stored_qparams(decisions: Mapping[str, QuantizeDynamic]) -> list[QParams]:
    return [w.qparams for d in decisions.values() for w in d.weights if w.qparams is not None]


def write_dynamic(model: ir.Model, decisions: Mapping[str, QuantizeDynamic]) -> None:
    """Rewrites the nodes of these names in place; the others may be quantized already."""
    writer = _DynamicWriter(model)
    writer.write(decisions)
    store_tied_integers_once(writer.new.quantized)
    share_quantizers(model)


class _DynamicWriter:
    """The state of one sweep: names in use, weights and constants that were made."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        used = {v.name for graph in model.graphs() for v in edit.all_values(graph) if v.name}
        used |= {node.name for node in edit.all_nodes(model) if node.name}
        self.new = Initializers(used)
        self.constants: dict[tuple[ir.Graph, str, bytes], ir.Value] = {}
        self.layouts: dict[tuple[ir.Value, QParams | None, int | None], Perm] = {}
        self.outermost = Outermost(model.graph)

    def write(self, decisions: Mapping[str, QuantizeDynamic]) -> None:
        chosen = [n for n, _ in walk(self.model.graph) if node_name(n) in decisions]
        # a bias that its lowering has rearranged is read no more, as float weights are
        slots = [v for node in chosen for v in node.inputs if v is not None]
        read = [v for v in slots if v.is_initializer() and not v.is_graph_input()]
        for node in chosen:
            self._lower(node, decisions[node_name(node)])
        for node in chosen:  # not before: a lowering may ask who else reads the float weight
            edit.graph_of(node).remove(node, safe=True)
        for value in dict.fromkeys((*self.new.replaced, *self.new.quantized, *read)):
            edit.forget_unread(value)

    def _lower(self, node: ir.Node, decision: QuantizeDynamic) -> None:
        operator = catalog.find(node.op_type, node.domain)
        assert operator is not None, "a node without operator is float"
        graph = edit.graph_of(node)
        inputs = list(node.inputs)
        for weight in decision.weights:
            value = input_at(node, weight.slot)
            assert value.name == weight.tensor, "the plan is of this model"
            inputs[weight.slot] = self._stored(value, weight, node)
        tape = Tape()
        results = operator.lower_dynamic(DynamicSite(tape, node, inputs, decision.node_plan))
        moved = self.outermost.constant_nodes(tape.nodes, results)
        self._register(tape, graph, moved)
        self._name(tape, node)
        for each in moved:
            self.outermost.take(each)
        graph.insert_before(node, [new for new in tape.nodes if new not in moved])
        for old, new in zip(node.outputs, results, strict=True):
            name, old.name = old.name, None
            new.name = name
            new.type, new.shape = new.type or old.type, new.shape or old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)

    def _stored(self, value: ir.Value, weight: DynamicWeightPlan, node: ir.Node) -> ir.Value:
        """The integers (or float16) of a weight in the layout that the node wants.

        Another node may want the same numbers in another order of axes: the file holds them once,
        and a Transpose, which ONNX Runtime carries out when it loads the model, turns them.
        """
        qparams, perm = weight.qparams, weight.perm
        key = (value, None if qparams is None else unpermuted(qparams, perm), weight.integer_limit)
        first = self.layouts.setdefault(key, perm) if can_turn(qparams) else perm
        if qparams is None:
            stored = self.new.half(value, first, self.model.graph)
        else:
            layout = permuted(unpermuted(weight.rounded_in or qparams, perm), first)
            # ONNX Runtime looks for the integers of MatMulNBits in the graph of the MatMul alone,
            # and refuses the model where it does not find them
            in_blocks = isinstance(qparams.granularity, PerBlock)
            home = edit.graph_of(node) if in_blocks else self.model.graph
            stored, _ = self.new.integers(
                value,
                layout,
                weight.integer_limit,
                perm=first,
                graph=home,
                bias_preserving=weight.bias_preserving,
            )
        return stored if first == perm else self._turned(stored, first, perm)

    def _turned(self, stored: ir.Value, first: Perm, wanted: Perm) -> ir.Value:
        """np.transpose(weight, wanted), of what is stored as np.transpose(weight, first)."""
        assert stored.shape is not None
        sizes = stored.shape.numpy()
        axes = tuple(range(len(sizes)))
        perm = tuple((first or axes).index(axis) for axis in wanted or axes)
        stem = value_name(stored).removesuffix("_quantized")
        turn = ir.node("Transpose", [stored], {"perm": perm})
        first_turn = self.outermost.take(turn)
        result = first_turn.outputs[0]
        if first_turn is turn:  # for the first of its readers
            turn.name = self.new.unique(f"{stem}_turn")
            result.name = self.new.unique(f"{stem}_turned_quantized")
            result.type, result.shape = stored.type, ir.Shape([sizes[axis] for axis in perm])
        return result

    def _register(self, tape: Tape, graph: ir.Graph, moved: Container[ir.Node]) -> None:
        """Constants of the lowering; equal ones that ask for one name are one initializer."""
        for value in tape.initializers:
            if not value.uses():
                continue
            wanted = value_name(value)
            home = self.model.graph if any(use.node in moved for use in value.uses()) else graph
            key = (home, wanted, tensor_of(value).tobytes())
            if key not in self.constants:
                value.name = self.new.unique(wanted)
                home.register_initializer(value)
                self.constants[key] = value
                continue
            value.replace_all_uses_with(self.constants[key])

    def _name(self, tape: Tape, node: ir.Node) -> None:
        """Names that are free, for all but a node that keeps the float node's name."""
        name = node_name(node)
        for new_node in tape.nodes:
            self.model.opset_imports.setdefault(new_node.domain, 1)  # com.microsoft has no other
            if new_node.name != name:
                new_node.name = self.new.unique(new_node.name or name)
            for value in new_node.outputs:
                value.name = self.new.unique(value.name or f"{new_node.name}_output")
            # names in its bodies must not be those of values around it
            for value in (v for body in bodies(new_node) for v in edit.all_values(body)):
                value.name = self.new.unique(value.name or f"{new_node.name}_inner")


class ShareQuantizers(ir.passes.InPlacePass):
    """Equal DynamicQuantizeLinear nodes of one graph become one. Every graph, for itself."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merges, then tells equal scales apart."""
        names: edit.FreeNames | None = None
        modified = False
        for graph in model.graphs():
            modified |= edit.merge_equal(
                graph, lambda node: node.inputs[0] if _is_quantizer(node) else None
            )
            for node in filter(_is_quantizer, list(graph)):
                for scale in _duplicates(node):
                    names = names or edit.FreeNames(model)
                    modified = _as_vector(scale, names) or modified
        return ir.passes.PassResult(model, modified)


def share_quantizers(model: ir.Model) -> None:
    """Runs the pass in place."""
    ShareQuantizers()(model)


def _is_quantizer(node: ir.Node) -> bool:
    return node.op_type == QUANTIZER and not node.domain


def _duplicates(quantizer: ir.Node) -> Iterable[ir.Node]:
    """Muls of the quantizer's scale by a number that an earlier such Mul has, too."""
    seen: set[bytes] = set()
    for use in list(quantizer.outputs[_SCALE].uses()):
        scale = _number(use.node)
        if scale is None:
            continue
        if scale.tobytes() in seen:
            yield use.node
        seen.add(scale.tobytes())


def _number(node: ir.Node) -> np.ndarray | None:
    """w_scale of a Mul by one number; None for anything else."""
    if node.op_type != "Mul" or node.domain:
        return None
    tensor = constant(node.inputs[1])
    return tensor.numpy() if tensor is not None and tensor.size == 1 else None


def _as_vector(mul: ir.Node, names: edit.FreeNames) -> bool:
    """Gives x_scale * w_scale a w_scale per column. False where the weight has one column only."""
    scale, columns = mul.inputs[1], _columns(mul)
    graph = scale.graph if scale is not None else None
    number = _number(mul)
    if scale is None or graph is None or number is None or columns is None or columns < 2:
        return False
    name = names.value(f"{scale.name}_per_column")
    tensor = ir.Tensor(np.full(columns, number.reshape(())), name=name)
    mul.replace_input_with(1, edit.new_initializer(graph, name, tensor))
    mul.outputs[0].shape = ir.Shape((columns,))
    edit.forget_unread(scale)
    return True


def _columns(mul: ir.Node) -> int | None:
    """Columns of the weight whose MatMulInteger x_scale * w_scale multiplies."""
    for use in mul.outputs[0].uses():
        for value in use.node.inputs:
            cast = value.producer() if value is not None else None
            total = cast.inputs[0].producer() if cast is not None and cast.inputs[0] else None
            if cast is None or total is None or total.op_type != INTEGER_MATMUL:
                continue
            weight = constant(total.inputs[1])
            shape = weight.shape.numpy() if weight is not None else ()
            return shape[-1] if len(shape) > 1 else None
    return None


class Outermost:
    """The start of the main graph, where computations on constants are put.

        body: y = op(x, Mul(Cast(w_quantized), w_scale))
          =>  main graph: w' = Mul(Cast(w_quantized), w_scale);  body: y = op(x, w')

    Bodies see the names around them. So a weight is dequantized once for all the steps of a Loop or
    Scan, for all the bodies that read it, and for all the steps of a loop that is written out. ONNX
    Runtime folds constants when it loads a model, in bodies too, but once per body; without its
    optimizations, and in the reference, they are computed in every step. Branches of If are no
    exception: folded constants are computed whether taken or not.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[object, ...], ir.Node] = {}
        self._results: set[ir.Value] = set()
        self._last: ir.Node | None = None

    def constant_nodes(
        self, nodes: Sequence[ir.Node], results: Iterable[ir.Value]
    ) -> dict[ir.Node, None]:
        """Nodes that compute on constants alone, in order."""
        belong = {value.producer() for value in results}
        found: dict[ir.Node, None] = {}
        for node in nodes:
            values = [value for value in node.inputs if value is not None]
            known = all(v.producer() in found or self._is_constant(v) for v in values)
            # ONNX Runtime makes MatMulNBits of a DQ and a MatMul in the same graph
            if known and node not in belong and not is_dequantize(node):
                found[node] = None
        return found

    def _is_constant(self, value: ir.Value) -> bool:
        constant = value.const_value is not None and not value.is_graph_input()
        return constant or value in self._results

    def take(self, node: ir.Node) -> ir.Node:
        """The node, inserted behind those taken before, or the equal one that is there already."""
        attributes = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
        key = (node.domain, node.op_type, tuple(node.inputs), attributes)
        first = self._made.setdefault(key, node)
        if first is not node:
            for mine, other in zip(node.outputs, first.outputs, strict=True):
                mine.replace_all_uses_with(other)
            node.resize_inputs(0)  # it reads nothing any more
            return first
        if self._last is not None:
            self._graph.insert_after(self._last, node)
        else:
            self._graph.insert_before(self._graph[0], node)
        self._last = node
        self._results.update(node.outputs)
        return node
