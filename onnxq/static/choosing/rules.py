"""Rules choose precisions without data, by what was measured of whole networks.

    no static form, but a dynamic one    DYNAMIC_INT8: recurrences, and what a Loop repeats
    weight that the file has in 4 bits   FLOAT
    MatMul of two activations            FLOAT
    linear layer                         INT8_FLOAT_OUTPUT; INT8 where linear layers in integers
                                         read it, or a function that saves more on integers
    sum with a float operand             FLOAT; INT8 where integer nodes read it
    embedding that float nodes read      WEIGHT_ONLY
    everything else                      INT8 where it pays (see insertion.insert_quantizers)

These rules take nodes out of static int8 that `insert_quantizers` has put there, and put none in.
Neighbours may lose their reason for integers by it: by_neighbours is asked until nothing changes.
"""

import math
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq import catalog, targets
from onnxq.catalog import has_dynamic_quantization
from onnxq.core.reason import Reason
from onnxq.dtypes import BYTE_BITS
from onnxq.dynamic.reasons import StoredInFewerBits
from onnxq.graph.prequantized_weights import stored_bits
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Float, OpCategory, Precision, Rule
from onnxq.operator.nodes import find_input
from onnxq.static import reasons
from onnxq.static.choosing.node_precisions import dynamic_entry
from onnxq.static.choosing.proposals import Proposal, Proposals, SoFar, in_float, open_entry
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.decision import Quantize, weight_of
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion

MEASURED_ON = "x86-vnni"


def by_static_quantization(so_far: SoFar) -> Proposals:
    """Proposes dynamic entries for nodes that static quantization leaves in float in any model."""
    context, found = so_far.context, dict[str, Proposal]()
    for node, loop in so_far.left:
        operator = catalog.find(node.op_type, node.domain)
        entry = open_entry(node, context.asked)
        if operator is None or entry is None or not has_dynamic_quantization(node):
            continue
        if isinstance(operator.dynamic_rule(node), Float):
            continue
        if loop is not None:
            found[node_name(node)] = Proposal(dynamic_entry(entry), reasons.RepeatedByLoop())
        elif isinstance(context.rules.verdict(node), Float):
            found[node_name(node)] = Proposal(dynamic_entry(entry), reasons.NoStaticForm())
    return found


def by_stored_bits(so_far: SoFar) -> Proposals:
    """Proposes float for nodes whose weight the file stores in fewer bits than integers take."""
    context, found = so_far.context, dict[str, Proposal]()
    for node, _ in context.order:
        decision = so_far.insertion.decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.rule.weight is None:
            continue
        weight = weight_of(node, decision.rule)
        if stored_bits(weight) < BYTE_BITS:
            reason = StoredInFewerBits(value_name(weight), stored_bits(weight))
            found |= in_float(context.asked, [node], reason)
    return found


def by_lookup(so_far: SoFar) -> Proposals:
    """Proposes dynamic entries for nodes that only take rows of a constant, for float nodes."""
    context, insertion, found = so_far.context, so_far.insertion, dict[str, Proposal]()
    for node, _ in so_far.left:
        entry, operator = open_entry(node, context.asked), catalog.find(node.op_type, node.domain)
        if operator is None or entry is None or not has_dynamic_quantization(node):
            continue
        if isinstance(insertion.decisions[node_name(node)], Quantize):
            continue
        category, dynamic = context.rules.category(node), operator.dynamic_rule(node)
        if category is not OpCategory.MOVEMENT or isinstance(dynamic, Float):
            continue
        if dynamic.precisions[0] is Precision.WEIGHT_ONLY:
            found[node_name(node)] = Proposal(dynamic_entry(entry), reasons.LookupForFloats())
    return found


def by_neighbours(so_far: SoFar) -> Proposals:
    """Proposes float, or float results, for integer nodes whose neighbours do not need integers."""
    return _Pass(so_far.context, so_far.insertion).naming()


@dataclass(frozen=True, slots=True, eq=False)
class _Base:
    """A node that runs in integers, with what is folded into it behind `results`."""

    node: ir.Node
    rule: Rule
    results: tuple[str, ...]

    @property
    def varying(self) -> list[str]:
        """Names of the tensors that it reads in integers and that are no constants."""
        values = (find_input(self.node, slot) for slot in self.rule.activations)
        return [value_name(v) for v in values if v is not None and not v.is_initializer()]


class _Pass:
    """One look at an insertion: which of its integer nodes the rules take away."""

    def __init__(self, context: Context, insertion: QuantizerInsertion) -> None:
        self.asked = context.asked
        self.bases = [
            _Base(node, decision.rule, decision.results)
            for node, _ in context.order
            if isinstance(decision := insertion.decisions[node_name(node)], Quantize)
            and not decision.folded_into
        ]
        self.from_integers = {t for base in self.bases for t in base.results}
        self.from_integers |= insertion.from_integers
        self.by_layers = set(context.quantized_output)
        self.by_any = set(context.quantized_output)
        self.saved_ahead: dict[str, float] = {}  # tensor -> what its readers save on integers

    def naming(self) -> Proposals:
        """Entries for nodes that lose their integers or their integer results, last ones first."""
        found: dict[str, Proposal] = {}
        for base in reversed(self.bases):
            entry = self.asked.for_node(node_name(base.node), base.node.op_type)
            lost = self._lost(base) if entry is not None and entry.precision is None else None
            if lost is None or lost[0] is not Precision.FLOAT:
                self._read(base)
            if lost is not None and entry is not None:
                found[node_name(base.node)] = Proposal(replace(entry, precision=lost[0]), lost[1])
        return found

    def _lost(self, base: _Base) -> tuple[Precision, Reason] | None:
        """(precision, reason) where the rules give it another precision; None: it keeps its own."""
        explicit = self.asked.explicit_for_node(node_name(base.node), base.node.op_type)
        if base.rule.category is not OpCategory.COMPUTE:
            return None if explicit else self._useless(base)
        if len(base.varying) > 1 and not explicit:
            return Precision.FLOAT, reasons.MatMulOfActivations()
        needed = base.rule.needs_output or any(
            t in self.by_layers or self.saved_ahead.get(t, 0.0) > _saved_by_matmul(base)
            for t in base.results
        )
        if needed or not base.results:
            return None
        return Precision.INT8_FLOAT_OUTPUT, reasons.FloatReadersOfResult()

    def _useless(self, base: _Base) -> tuple[Precision, Reason] | None:
        """FLOAT, for a node that adds or moves integers for float nodes alone.

        A sum of two convolutions stays on integers: in float it would be more accurate, but both
        operands would be converted and leave channels last, which takes more time than the sum.
        """
        if any(t in self.by_any for t in base.results):
            return None
        if base.rule.category is not OpCategory.ELEMENTWISE:
            return Precision.FLOAT, reasons.NobodyReads()
        floats = any(t not in self.from_integers for t in base.varying)
        return (Precision.FLOAT, reasons.SumWithFloat()) if floats else None

    def _read(self, base: _Base) -> None:
        """Notes which tensors the node reads in integers, directly or for those behind it."""
        read = base.varying
        match base.rule.category:
            case OpCategory.COMPUTE:
                self.by_layers.update(read)
                self.by_any.update(read)
            case OpCategory.ELEMENTWISE:
                self.by_any.update(read)
                if any(t in self.by_layers for t in base.results):
                    operator = catalog.find(base.node.op_type, base.node.domain)
                    saved = 0.0 if operator is None else operator.saved_on_integers
                    self._ask_ahead(read, saved)
            case OpCategory.MOVEMENT | OpCategory.CLAMP:
                self.by_any.update(read)
                saved = max((self.saved_ahead.get(t, 0.0) for t in base.results), default=0.0)
                self._ask_ahead(read, saved)
                if any(t in self.by_layers for t in base.results):
                    self.by_layers.update(read)

    def _ask_ahead(self, tensors: list[str], saved: float) -> None:
        """Notes what integers of the tensors save behind them, per element."""
        self.saved_ahead |= {t: max(saved, self.saved_ahead.get(t, 0.0)) for t in tensors}


def _saved_by_matmul(base: _Base) -> float:
    """Nanoseconds per element of the result that a linear layer saves in integers.

    A rounding more is worth it for a function that saves more than that: a Mish, of which the float
    precision takes 10 ns, behind layers of fewer than 1,400 terms. Integers of three of them with
    their layers of 128 and 512 terms take 0.18 of float's time in place of 0.81.
    """
    weight = None if base.rule.weight is None else base.node.inputs[base.rule.weight.slot]
    if weight is None or weight.shape is None or base.rule.weight is None:
        return math.inf
    sizes = [size for size in weight.shape if isinstance(size, int)]
    terms = math.prod(sizes) / max(sizes[base.rule.weight.axis], 1)
    throughput = targets.find(MEASURED_ON).throughput
    assert throughput is not None, "functions were measured on it, too"
    return terms * (1 / throughput.float32 - 1 / throughput.uint8_int8)
