"""Mixed bits: 2, 4, 8 or float for each linear layer, so that a budget is met with least noise.

    least sum of noise(n, b)    where the sizes of all layers together are at most the budget

Noises of layers add up at the outputs, as they are small and independent; what is chosen so is
run beside the same bits everywhere, and the better of the two is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real

import onnx_ir as ir

from onnxq.core.brief import size_text
from onnxq.core.knapsack import Knapsack, Option
from onnxq.errors import QConfigError
from onnxq.graph.saving import saved_bytes
from onnxq.operator import Float
from onnxq.qparams.group_spec import BITS, GroupSpec
from onnxq.samples.inputs import Batch
from onnxq.weights.bit_noise import MEASURED_BATCHES, BitNoise, bit_noise, output_noise
from onnxq.weights.experts import unfolded
from onnxq.weights.reasons import ErrorAboveBudget
from onnxq.weights.weight_plan import Groupwise, WeightPlan

FLOAT_BITS, FLOAT_BYTES = 32, 4
CHOICES = (*BITS, FLOAT_BITS)
"""Bits that a layer can have."""
SHOWN = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0)
"""Average bits of the rows of the table."""


@dataclass(frozen=True, slots=True)
class SizeAim:
    """Size that is asked for; one of the two is given.

    Attributes:
        bits_average: bits of an integer, on the average of all weights of linear layers.
        size: of the file, over that of the float model.
    Raises:
        QConfigError: both or none, or a size that is not above 0 and at most 1.
    """

    bits_average: float | None = None
    size: float | None = None

    def __post_init__(self) -> None:
        if (self.bits_average is None) == (self.size is None):
            raise QConfigError("mixed bits: give an average of bits or a size, one of the two.")
        for what, value in (("bits_average", self.bits_average), ("size", self.size)):
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not is_number:
                raise QConfigError(f"{what}: got {value!r}; wanted a number.")
        if self.size is not None and not 0 < self.size <= 1:
            raise QConfigError(
                f"size: got {self.size:g}; wanted a part of the float model's size, above 0 and "
                "at most 1."
            )

    @classmethod
    def of(cls, given: SizeAim | float | None) -> SizeAim | None:
        """A SizeAim as it is, or one of the file's size; None: bits are not mixed."""
        return given if given is None or isinstance(given, SizeAim) else cls(size=given)

    def budget(self, model: ir.Model, plan: WeightPlan) -> BitBudget:
        """The budget that the layers have to keep.

        Raises:
            QConfigError: nothing can meet it.
        """
        if self.size is None:
            return BitBudget(average=self.bits_average)
        whole = saved_bytes(model)
        floats = {d.tensor: d.outputs * d.inputs * FLOAT_BYTES for d in plan.quantized.values()}
        embeddings = {d.embedding: d for d in plan.quantized.values() if d.embedding}
        stored = sum(d.spec.size_bytes(d.outputs, d.inputs) for d in embeddings.values())
        return BitBudget(size_bytes=self.size * whole - (whole - sum(floats.values())) - stored)


@dataclass(frozen=True, slots=True)
class BitBudget:
    """Most that the layers may take; one of the two is given."""

    average: float | None = None
    size_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.average is not None and not BITS[0] <= self.average <= FLOAT_BITS:
            raise QConfigError(
                f"average bits: got {self.average:g}; wanted {BITS[0]} to {FLOAT_BITS}."
            )

    def cost(self, decision: Groupwise, bits: int) -> float:
        """Part of the budget that a layer takes with so many bits."""
        weights = decision.outputs * decision.inputs
        if self.average is not None:
            return float(bits * weights)
        if bits == FLOAT_BITS:
            return float(weights * FLOAT_BYTES)
        return float(decision.spec.at(bits).size_bytes(decision.outputs, decision.inputs))

    def most(self, plan: WeightPlan) -> float:
        """The budget in the unit of `cost`."""
        if self.average is not None:
            return self.average * sum(d.outputs * d.inputs for d in plan.quantized.values())
        assert self.size_bytes is not None
        return self.size_bytes


@dataclass(frozen=True, slots=True)
class Mix:
    """Bits of every linear layer.

    Attributes:
        bits: layer -> 2, 4, 8, or 32 for float.
        average: bits, over all weights.
        noise: of the outputs over their power, as predicted.
    """

    bits: Mapping[str, int]
    average: float
    size_bytes: float
    noise: float

    @property
    def sqnr_db(self) -> float:
        """Predicted, of integers that are rounded to nearest."""
        return math.inf if self.noise <= 0 else -10 * math.log10(self.noise)

    @property
    def counts(self) -> dict[int, int]:
        """Bits -> layers."""
        return {bits: sum(b == bits for b in self.bits.values()) for bits in CHOICES}


@dataclass(frozen=True, slots=True)
class Mixed:
    """A plan with mixed bits, and what it was chosen from.

    Attributes:
        front: mixes with the least noise for their size, small ones first.
        measured: noise of the outputs over their power, of the mix and of the same bits
            everywhere; None: there are none within the budget, or nothing to run.
    """

    plan: WeightPlan
    chosen: Mix
    front: tuple[Mix, ...]
    measured: tuple[float, float] | None


def mixed_bits(
    model: ir.Model, plan: WeightPlan, batches: Iterable[Batch], budget: BitBudget
) -> Mixed:
    """The plan with the bits of each layer chosen within a budget."""
    _check(plan, budget)
    model = unfolded(model, plan.mixtures)
    few = list(itertools.islice(batches, MEASURED_BATCHES))
    noise = bit_noise(model, plan, batches, few)
    best = _Search(plan, noise, budget).mix(budget.most(plan))
    even = _even(plan, noise, budget)
    measured = None
    if even is not None and even.bits != best.bits:
        variants = [_specs(plan, mix) for mix in (best, even)]
        first, second = output_noise(model, plan, few, variants)
        measured = first, second
        best = even if second < first else best
    by_bits = _Search(plan, noise, BitBudget(average=FLOAT_BITS))
    total = sum(d.outputs * d.inputs for d in plan.quantized.values())
    front = tuple(by_bits.mix(average * total) for average in SHOWN)
    left = {n: Float(ErrorAboveBudget()) for n, bits in best.bits.items() if bits == FLOAT_BITS}
    chosen = plan.with_specs({**_specs(plan, best), **left})
    return Mixed(chosen, best, front, measured)


def _check(plan: WeightPlan, budget: BitBudget) -> None:
    least = sum(budget.cost(d, BITS[0]) for d in plan.quantized.values())
    if budget.size_bytes is not None and budget.size_bytes < least:
        room = size_text(int(budget.size_bytes)) if budget.size_bytes > 0 else "nothing"
        raise QConfigError(
            f"the size asked for leaves {room} for linear layers' weights; in "
            f"{BITS[0]} bits they take {size_text(int(least))}. Ask for more, or for larger blocks."
        )


class _Search:
    """Knapsack of one plan, and the mixes on its front."""

    def __init__(self, plan: WeightPlan, noise: Mapping[str, BitNoise], budget: BitBudget) -> None:
        self._plan, self._noise = plan, noise
        self._same_bits: dict[str, list[str]] = {}  # as the experts of a mixture have
        for name, decision in plan.quantized.items():
            self._same_bits.setdefault(decision.part_of or name, []).append(name)
        options = [
            [
                Option(
                    sum(budget.cost(plan.quantized[n], b) for n in names),
                    sum(_noise(noise[n], b) for n in names),
                )
                for b in CHOICES
            ]
            for names in self._same_bits.values()
        ]
        self._knapsack = Knapsack(options)

    def mix(self, most: float) -> Mix:
        """The quietest mix within a cost."""
        taken = self._knapsack.least_noise(most)
        pairs = zip(self._same_bits.values(), taken, strict=True)
        bits = {n: CHOICES[i] for names, i in pairs for n in names}
        return _mix(self._plan, self._noise, bits)


def _noise(noise: BitNoise, bits: int) -> float:
    return 0.0 if bits == FLOAT_BITS else noise.at(bits)


def _mix(plan: WeightPlan, noise: Mapping[str, BitNoise], bits: Mapping[str, int]) -> Mix:
    weights = {n: d.outputs * d.inputs for n, d in plan.quantized.items()}
    size = BitBudget(size_bytes=math.inf)
    return Mix(
        bits,
        sum(bits[n] * count for n, count in weights.items()) / sum(weights.values()),
        sum(size.cost(d, bits[n]) for n, d in plan.quantized.items()),
        sum(_noise(noise[n], bits[n]) for n in plan.quantized),
    )


def _even(plan: WeightPlan, noise: Mapping[str, BitNoise], budget: BitBudget) -> Mix | None:
    """The most bits that all layers can have within the budget; None: not even 2."""
    for bits in reversed(CHOICES):
        if sum(budget.cost(d, bits) for d in plan.quantized.values()) <= budget.most(plan):
            return _mix(plan, noise, dict.fromkeys(plan.quantized, bits))
    return None


def _specs(plan: WeightPlan, mix: Mix) -> dict[str, GroupSpec]:
    quantized = plan.quantized
    return {n: quantized[n].spec.at(b) for n, b in mix.bits.items() if b != FLOAT_BITS}
