"""CrossFindings of cross_check: a value to print, to save as JSON, to hold against bounds."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from onnxq.checking.differences import Unit  # the codec reads annotations at run time
from onnxq.core.brief import brief
from onnxq.core.reason import Reason
from onnxq.core.saved import Saved
from onnxq.errors import VerificationError, in_lines
from onnxq.page.card import card_of
from onnxq.static.arguments import check_bound


class NotReached(Reason):
    """No sample reached the node."""

    WORDS = "no sample reached it"


class NotCompared(Reason):
    """The integers of the node could not be computed or read."""

    WORDS = "{said}"
    said: str


class Unchecked(enum.Enum):
    """Meaning for `check` of nodes that compute on integers, but were not compared."""

    REFUSED = "refused"
    """Unchecked nodes break it."""
    ALLOWED = "allowed"
    """Unchecked nodes are listed; so is that the whole model could not be run because of them."""


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """An integer node of ONNX Runtime's graph beside its kernel, on the inputs that it really had.

    Attributes:
        kernel: who computed it: "onnxq", or "onnx.reference" where onnx's own implementation
            serves (operators on integers that nothing quantizes, as Cast).
        elements: compared, all outputs.
        largest: difference, in `unit`.
        problem: shapes or dtypes that differ; empty: none.
        overflows: sums in it that exact integers would not give, as this machine adds in int16, or
            rounds otherwise; the kernel does likewise.
    """

    name: str
    op_type: str
    domain: str
    kernel: str
    elements: int
    differing: int
    largest: int
    unit: Unit
    problem: str
    overflows: int = 0


@dataclass(frozen=True, slots=True)
class UncheckedNode:
    """A node that computes on integers and could not be compared."""

    name: str
    op_type: str
    domain: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node that computes in float32, or on shapes and conditions; there is nothing to compare."""

    name: str
    op_type: str
    domain: str


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """An output of the reference evaluator on the model file beside ONNX Runtime's.

    Attributes:
        largest: difference, in `unit`.
        problem: why it could not be compared; empty: it was.
        behind: where it differs, the first node in front of it that computes in float, and so
            rounds as it is fused; empty: none.
        rounding: units that such nodes explain (see onnxq.checking.rounding); 0: none.
    """

    name: str
    elements: int
    differing: int
    largest: int
    unit: Unit
    problem: str
    behind: str = ""
    rounding: int = 0


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds that `check` takes."""

    lsb: float | None = None
    share: float | None = None
    unchecked: Unchecked = Unchecked.REFUSED
    output_lsb: float | None = None


@dataclass(frozen=True)
class CrossFindings(Saved):
    """ONNX Runtime and the reference kernels on the same samples, node by node and end to end.

    Attributes:
        nodes: integer nodes that were compared, in the order of ONNX Runtime's graph.
        instrumented: outputs whose values changed when inner tensors were made visible; nothing
            can be said of such a model.
        first_difference: the first node, in the order of ONNX Runtime's graph, whose result the
            evaluator on the model file does not have; empty: none.
        end_to_end: why the evaluator could not run the model file; empty: it did.
        weights_alone: by design no node computes in integers: onnxq wrote the file, and quantized
            weights in it at most. Only the outputs are compared.
        machine: target whose arithmetic the kernels had, this machine's.
    """

    FORMAT: ClassVar[str] = "onnxq cross-check 3"
    NOUN: ClassVar[str] = "cross-check findings"
    ANEW: ClassVar[str] = "Run cross_check anew."
    DERIVED: ClassVar[tuple[str, ...]] = ("differing", "exact")

    model_hash: str
    batches: int
    nodes: tuple[NodeFinding, ...]
    unchecked: tuple[UncheckedNode, ...]
    floats: tuple[FloatNode, ...]
    instrumented: tuple[str, ...]
    outputs: tuple[OutputAgreement, ...]
    first_difference: str
    end_to_end: str
    weights_alone: bool = False
    machine: str = ""

    __repr__ = brief
    _repr_html_ = card_of

    @property
    def differing(self) -> int:
        """Elements that differ, node by node and end to end.

        0 is no proof: what was not compared does not differ. See `exact` and `check`.
        """
        return sum(n.differing for n in self.nodes) + sum(o.differing for o in self.outputs)

    @property
    def overflows(self) -> int:
        """Sums of all nodes that exact integers would not give; other machines differ there."""
        return sum(n.overflows for n in self.nodes)

    @property
    def exact(self) -> bool:
        """Whether all integers were compared, there are some, and all outputs are equal.

        Stricter than `check()`, which lets float nodes round.
        """
        whole = bool(self.nodes) and not self.unchecked
        return whole and not self._broken(_Bounds(output_lsb=0))

    @property
    def uncompared(self) -> tuple[UncheckedNode, ...]:
        """Integer nodes that ran, and whose integers nobody compared."""
        return tuple(node for node in self.unchecked if not isinstance(node.reason, NotReached))

    @property
    def unreached(self) -> tuple[UncheckedNode, ...]:
        """Integer nodes that no sample reached, as in the other branch of an If."""
        return tuple(node for node in self.unchecked if isinstance(node.reason, NotReached))

    def is_rounding(self, output: OutputAgreement) -> bool:
        """Whether the output differs, by no more than float nodes round, and every integer agrees.

        Where an integer differs, was not compared though it was computed, or parts from the
        evaluator's, it is not.
        """
        integers = any(n.differing or n.problem for n in self.nodes)
        if integers or self.uncompared or self.first_difference or output.problem:
            return False
        return bool(output.differing) and output.largest <= output.rounding

    def check(
        self,
        max_lsb: float | None = None,
        max_differing: float | None = None,
        unchecked: Unchecked = Unchecked.REFUSED,
        max_output_lsb: float | None = None,
    ) -> None:
        """Returns if nothing differs, node by node and end to end, or within the bounds given.

        Outputs may differ by what float nodes in front of them round (`is_rounding`). Nodes that no
        sample reached break nothing, as nothing is said of other samples: see `unreached`.

        Args:
            max_lsb: differences up to so many LSB are allowed, in any number of elements
                (unless max_differing bounds that).
            max_differing: share of the elements of a node or output that may differ, from 0 to 1,
                by any number of LSB (unless max_lsb bounds that).
            unchecked: what integer nodes without a comparison mean. That the model could not be
                run end to end is allowed along with such nodes, never without them.
            max_output_lsb: bound for the outputs end to end, in place of the other two and of
                what counts as rounding. ONNX Runtime fuses float nodes, and rounds them otherwise
                then than one by one.
        """
        for name, bound in (
            ("max_lsb", max_lsb),
            ("max_differing", max_differing),
            ("max_output_lsb", max_output_lsb),
        ):
            check_bound(name, bound)
        bounds = _Bounds(max_lsb, max_differing, unchecked, max_output_lsb)
        broken = self._broken(bounds)
        if not broken:
            return
        raise VerificationError(
            f"{len(broken)} finding(s):{in_lines(broken)}\n{self._remedy(broken, unchecked)}"
        )

    def _broken(self, bounds: _Bounds) -> list[str]:
        """One sentence for each bound that does not hold."""
        broken = [
            f"output '{name}' changes when inner tensors are read" for name in self.instrumented
        ]
        refused = bounds.unchecked is Unchecked.REFUSED
        if refused:
            broken += map(_not_checked, self.uncompared)
        if self.end_to_end and (refused or not self.unchecked):
            broken.append(f"end to end was not checked: {self.end_to_end}")
        nodes = [(f"{n.op_type} '{n.name}'", n) for n in self.nodes]
        own = bounds.output_lsb is not None
        far = [o for o in self.outputs if own or not self.is_rounding(o)]
        outputs = [(f"output '{o.name}', end to end", o) for o in far]
        broken += _differences(nodes, bounds.lsb, bounds.share)
        if own:
            broken += _differences(outputs, bounds.output_lsb, None)
        else:
            broken += _differences(outputs, bounds.lsb, bounds.share)
        if not self.nodes and not self.weights_alone:
            if refused:
                broken += map(_not_checked, self.unreached)
            if refused and not self.unchecked:
                broken.append(
                    "ONNX Runtime runs no node of this model in integers: no integers were compared"
                )
        return broken

    def _remedy(self, broken: Sequence[str], unchecked: Unchecked) -> str:
        """Remedy in words: a kernel is to blame only where nodes differ on the inputs they had."""
        unreached = set(map(_not_checked, self.unreached))
        if unreached.issuperset(broken):
            return (
                "No integers were compared. Give samples that reach these nodes (the other branch "
                "of an If, a Loop that runs), or allow it: --allow-unchecked."
            )
        refused = unchecked is Unchecked.REFUSED
        if refused and not self.nodes and not self.unchecked and not self.weights_alone:
            return (
                "Give a quantized model, as onnxq.quantize(model, samples) makes it. By default "
                "all nodes stay in float where integers would save too little time; --all-integers "
                "(Choice.ALL_INTEGERS) quantizes them anyway, as objective 'size' "
                "(--objective size) does of what is quantized dynamically. A file that is meant to "
                "be all float passes with --allow-unchecked. Other models than quantized ones "
                "compare with `onnxq verify`."
            )
        rounded = [o for o in self.outputs if o.differing and o.behind and not o.problem]
        if rounded and not any(n.differing or n.problem for n in self.nodes):
            lsb = max(o.largest for o in self.outputs)
            ran, tips = "nothing runs in integers", ""
            if self.nodes:
                ran = f"0 of {len(self.nodes)} integer nodes differ on the inputs that they had"
                tips = ", which can tip an integer behind it"
            return (
                f"No kernel is to blame: {ran}. In front of output '{rounded[0].name}' is "
                f"{rounded[0].behind}, which computes in float: fused with its neighbours ONNX "
                f"Runtime rounds it otherwise{tips}. Where a difference of this size is "
                f"all right, allow it: max_output_lsb={lsb} (--max-output-lsb {lsb}). "
                "Is it more than rounding, ONNX Runtime fuses the file otherwise than onnxq"
                + (f": look at node '{self.first_difference}'." if self.first_difference else ".")
            )
        return (
            "Look at the first node that differs: its kernel, or ONNX Runtime on this machine, is "
            "wrong. Where a small difference is all right, allow it: max_lsb, max_differing "
            "(--max-lsb N, --max-differing SHARE), for outputs behind float nodes "
            "max_output_lsb; for nodes that were not checked --allow-unchecked."
        )


def _not_checked(node: UncheckedNode) -> str:
    return f"{node.op_type} '{node.name}' was not checked: {node.reason}"


def _differences(
    places: Sequence[tuple[str, NodeFinding | OutputAgreement]],
    max_lsb: float | None,
    max_differing: float | None,
) -> list[str]:
    broken = []
    for where, found in places:
        if found.problem:
            broken.append(f"{where}: {found.problem}")
        elif found.differing and _beyond(found, max_lsb, max_differing):
            broken.append(
                f"{where}: {found.differing} of {found.elements} elements differ, by up to "
                f"{found.largest} {found.unit}"
            )
    return broken


def _beyond(
    found: NodeFinding | OutputAgreement, max_lsb: float | None, max_differing: float | None
) -> bool:
    """Whether differences break the bounds; without any bound, they do."""
    if max_lsb is None and max_differing is None:
        return True
    too_far = max_lsb is not None and found.largest > max_lsb
    too_many = max_differing is not None and found.differing > max_differing * found.elements
    return too_far or too_many
