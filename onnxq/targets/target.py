"""Target of quantized models as a value: types, ranges and speed of one kind of machine.

Which operators are slow in integers was measured on AVX512-VNNI by benchmarks/elementwise.py;
what it printed is in benchmarks/results/elementwise.txt. The other targets use the same numbers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from onnxq.core.brief import brief
from onnxq.page.card import card_of
from onnxq.targets.accumulation import SaturationMode
from onnxq.targets.reduce_range import ReduceRange, as_reduce_range
from onnxq.targets.speedups import DYNAMIC_SPEEDUPS, DynamicSpeedup

TypePair = tuple[str, str]
"""Names of QDTypes: (activation, weight)."""

_PAIRS: tuple[TypePair, ...] = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))

# Printed by benchmarks/elementwise.py (a test compares). Faster in integers were Add, Mul,
# Concat, Sigmoid, LeakyRelu, GlobalAveragePool, MaxPool, Transpose, DepthToSpace, and of what
# onnxq writes on integers Neg, Sub, Div, Pow, Tanh, HardSigmoid, PRelu, Elu, Selu, Celu, Softplus,
# Mish, Log, Sin, Cos, Sign; as fast was Abs.
SLOW_IN_INTEGERS: Mapping[str, float] = {
    "Softmax": 0.57,
    "AveragePool": 0.34,
    "Resize": 0.74,
    "Where": 0.09,
}


AS_FAST = 1.0
"""Ratio of a precision that runs as fast as float."""
UNPROVEN = 0.98
"""Speedup expected below all shapes that were measured: less than float, and than STORED."""


FIXED_POINT = (
    "sums of integers round in fixed point, products by a fused multiply-add: where scales were "
    "not chosen for that (imported models, other targets) they may be one LSB off near ties"
)


DIVIDED_PAIRS = (
    "sums and products of integers are divided by the scale of the result: where scales were not "
    "chosen for that (imported and trained models, other targets) they may be one LSB off near ties"
)


UNFUSED_SUMS = (
    "sums of integers are rounded without fused multiply-adds: where scales were not chosen for "
    "that (imported models, other targets) they may be one LSB off near ties"
)


class Proof(enum.Enum):
    """How it is known what a machine computes."""

    RUN = "run by the tests"
    """`pytest -m isa` runs ONNX Runtime's own kernels for it, emulated or on the machine itself."""
    PREDICTED = "predicted"
    """From the arithmetic that it shares with one that is run; measured once."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Billions of multiplications and additions per second, one thread, and where it was measured.

    Attributes:
        uint8_int8: activations by weights.
        uint8_uint8: the same.
        int8_int8: the same, in operators on integers; in QDQ graphs x86 runs them as uint8 by int8.
        float32: for comparison.
        source: machine and shapes.
    """

    uint8_int8: float
    uint8_uint8: float
    int8_int8: float
    float32: float
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that quantized models run on.

    Attributes:
        name: as `find` knows it.
        description: instruction set and what is special, in one line.
        weight_qmax_saturating: largest magnitude of an int8 weight in operators whose products are
            summed in pairs in int16 (a rule's `saturating_pairs`): 64 or 127.
        weight_qmax: largest magnitude of int8 weights elsewhere: 127, never 128.
        saturation_mode: what becomes of pairs of products that int16 does not hold.
        pairs: (activation, weight) types that QLinearConv and QLinearMatMul have kernels for.
        preferred: the fastest pair that is exact.
        slow_in_integers: op_type -> time in float / time in integers, inside an int8 network;
            `prepare` leaves these operators in float unless the qconfig names them.
        proof: how it is known what it computes.
        measurement: how results were compared bit for bit.
        dynamic_speedups: measured speedups of dynamically quantized nodes.
        reduce_range: where weights give up range so that pairs of products fit int16.
        throughput: None: not measured.
        agreeing_sums: scales of sums and products of integers (QLinearAdd, QLinearMul) are raised
            until fixed point (ARM), separate multiplications and additions (x86-sse) and divisions
            (wasm) round as fused multiply-adds do.
        int8_activations: QDQ graphs with int8 activations run in integers as they are; elsewhere
            they are stored as uint8 (see onnxq.static.insertion).
        caveat: what is not exact, and when; empty: nothing is known.
    """

    name: str
    description: str
    weight_qmax_saturating: int
    weight_qmax: int = 127
    saturation_mode: SaturationMode = SaturationMode.EXACT
    pairs: tuple[TypePair, ...] = _PAIRS
    preferred: TypePair = ("uint8", "int8")
    slow_in_integers: Mapping[str, float] = field(
        default_factory=lambda: SLOW_IN_INTEGERS, hash=False
    )
    proof: Proof = Proof.RUN
    measurement: str = ""
    dynamic_speedups: tuple[DynamicSpeedup, ...] = field(default=DYNAMIC_SPEEDUPS, repr=False)
    reduce_range: ReduceRange = ReduceRange.WORST_CASE
    throughput: Throughput | None = None
    agreeing_sums: bool = False
    int8_activations: bool = False
    caveat: str = ""

    __repr__ = brief
    _repr_html_ = card_of

    def __str__(self) -> str:
        return self.name

    @property
    def activations(self) -> str:
        """Preferred types of activations, and what else has kernels, in words."""
        first = self.preferred[0]
        others = sorted({a for a, _ in self.pairs} - {first})
        return f"{first} (or {', '.join(others)})" if others else first

    @property
    def weights(self) -> str:
        """The weights that follow from what the machine does to products, in words."""
        if not self.reduces_range:
            return f"int8 within +-{self.weight_qmax}"
        if self.reduce_range is ReduceRange.EVERYWHERE:
            return f"int8 within +-{self.weight_qmax_saturating} where pairs are added"
        where = "any input" if self.reduce_range.for_any_input else "the samples"
        return f"int8 within +-{self.weight_qmax}, pairs within int16 for {where}"

    def with_reduce_range(self, which: ReduceRange | str) -> Target:
        """The same machine, with weights held back elsewhere.

        Args:
            which: "worst-case", "everywhere", or "observed", which is exact on the samples alone.
        Raises:
            QConfigError: it is none of these.
        """
        return replace(self, reduce_range=as_reduce_range(which))

    @property
    def reduces_range(self) -> bool:
        """Whether products of full-range weights would saturate here."""
        return self.weight_qmax_saturating < self.weight_qmax

    def dynamic_speedup(
        self,
        op_type: str,
        precision: str,
        bits: int,
        k: int,
        n: int,
        m: int | None,
        least_m: int = 1,
    ) -> float | None:
        """Time in float / time dynamically quantized: the least that shapes around this one had.

        Around it are, for k, then n, then m, the nearest measured sizes on both sides, or that
        size itself. Above the largest, the largest counts; below the smallest, the smallest, and
        no more than UNPROVEN. Without m, the least of all rows from least_m on.

        Args:
            op_type: of the float node.
            precision: a Precision's value.
            bits: of the weight's integers.
            k: numbers that are summed per result, at least 1.
            n: results per row, at least 1.
            m: rows of the activation; None: not known before the model runs.
            least_m: where m is None, no fewer rows than that.
        Returns:
            None where that operator was not measured so.
        """
        measured = [
            g
            for g in self.dynamic_speedups
            if g.op_type == op_type and g.precision == precision and g.bits == bits
        ]
        if not measured:
            return None
        sizes = {"k": k, "n": n} | ({} if m is None else {"m": max(m, 1)})
        around = [measured]
        for name, size in sizes.items():
            around = [
                near for speedups in around for near in _around(speedups, attrgetter(name), size)
            ]
        if m is None:
            fewest = max((g.m for g in measured if g.m <= least_m), default=0)
            around = [
                [speedup for speedup in speedups if speedup.m >= fewest] for speedups in around
            ]
        ratio = min(speedup.ratio for speedups in around for speedup in speedups)
        below = any(size < min(getattr(g, name) for g in measured) for name, size in sizes.items())
        return UNPROVEN if below and ratio >= AS_FAST else ratio


def _around(
    speedups: Sequence[DynamicSpeedup], key: Callable[[DynamicSpeedup], int], size: int
) -> list[list[DynamicSpeedup]]:
    """The speedups of the largest key up to size, and of the smallest from size on."""
    known = sorted({key(speedup) for speedup in speedups})
    low = max((each for each in known if each <= size), default=known[0])
    high = min((each for each in known if each >= size), default=known[-1])
    return [
        [speedup for speedup in speedups if key(speedup) == each]
        for each in dict.fromkeys((low, high))
    ]
