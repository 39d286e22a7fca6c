"""Judgement of a change at the outputs of a model, by samples that it was not made from.

Few samples tell little: their noise differs much from one to the next, so that a change that helps
on thousands of others may lose on them. So the two models are compared sample by sample, and what
counts as a loss is one beyond its standard error:

    d = after - before          mean(d) > std(d) / sqrt(n)

Layers of such a change have been judged before: a loss that chance alone explains is no reason
against it. Factors of a float model change what nothing before the outputs has judged: chance must
not explain the gain of such a change.

Errors of samples may differ by a factor of ten and more, so that a few samples make up the mean of
d and most of its spread, and the others are not heard. A gain shows in each sample's own measure:

    u = (before - after) / (before + after)       tanh of half of log(before / after); 1 dB is 0.115
    t = mean(u) / (std(u) / sqrt(n))         P(T > t) < CHANCE, T of Student's t with n - 1 degrees

and the sum of the errors, which SQNR is made of, has to be less, too. So 64 samples keep two of
three gains of 0.6 dB where errors are spread over decades (tests/weights/test_judgement.py).
benchmarks/results/improve.md says which networks keep `smooth`, and of which it is withdrawn.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.core.arrays import Array, Reals
from onnxq.observers.tensor_noise import decibels
from onnxq.quantized.output_parts import PartSums
from onnxq.samples.batches import Batches
from onnxq.samples.excerpt import EVERY, HANDFUL, rows_of
from onnxq.samples.inputs import Batch, has_dynamic_batch
from onnxq.static.prepared import Prepared
from onnxq.times.timed_runs import one_row

Compared = tuple[int, Sequence[tuple[Array, ...]]]
"""Samples of a batch, and per output of floats: the float model's, and those of the others."""


CHANCE = 0.05
"""Probability that a gain out of nothing counts, shared by the models of which one is the best."""
ANGLES = 1 << 14  # of the integrals: enough for four digits


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Errors of two models at the outputs, sample by sample.

    Attributes:
        signal: float64 (samples,), power of the float model's outputs, each in units of its own.
        before: float64 (samples,), that of the error of the model as it was.
        after: float64 (samples,), that of the changed one.
    """

    signal: Reals
    before: Reals
    after: Reals

    @property
    def before_db(self) -> float:
        """SQNR of the model as it was, all samples together."""
        return decibels(float(self.signal.sum()), float(self.before.sum()))

    @property
    def after_db(self) -> float:
        """SQNR of the changed model."""
        return decibels(float(self.signal.sum()), float(self.after.sum()))

    @property
    def is_loss(self) -> bool:
        """Whether the changed model loses more than the standard error of so many samples."""
        return _is_beyond_chance(self.after - self.before)

    @property
    def is_less(self) -> bool:
        """Whether the changed model loses less in sum, by chance or not."""
        return bool(self.after.sum() < self.before.sum())

    def is_gain(self, tried: int) -> bool:
        """Whether the best of so many models gains more than chance explains.

        One sample cannot tell.
        """
        return self.is_less and _chance_of(_shares(self.before, self.after)) < CHANCE / tried


def _shares(before: Reals, after: Reals) -> Reals:
    """U = (before - after) / (before + after), from -1 to 1; 0 where there is no error at all."""
    both = before + after
    return np.divide(before - after, both, out=np.zeros_like(both), where=both > 0)


def _chance_of(differences: Reals) -> float:
    """Probability that so many numbers of mean 0 have a mean so far above 0, for its error.

    The density of Student's t with v degrees is that of cos(a)^(v - 1), a = atan(t / sqrt(v)).
    """
    degrees = differences.size - 1
    if degrees < 1 or not differences.mean() > 0:
        return 1.0
    error = differences.std(ddof=1) / np.sqrt(differences.size)
    start, half = np.arctan2(differences.mean(), error * np.sqrt(degrees)), np.pi / 2
    tail, whole = (
        np.mean(np.cos(np.linspace(low, half, ANGLES)) ** (degrees - 1)) * (half - low)
        for low in (start, -half)
    )
    return float(tail / whole)


def _is_beyond_chance(differences: Reals) -> bool:
    """Whether their mean is above its standard error; one has none, and is above 0.

    NaN is: nothing is known of a model that gives it.
    """
    if differences.size < 2:
        return not differences.sum() <= 0
    with np.errstate(invalid="ignore"):
        error = differences.std(ddof=1) / np.sqrt(differences.size)
    return not differences.mean() <= error


def judgement_of(batches: Iterable[Compared]) -> Judgement | None:
    """The judgement of batches; None where they have no output of floats."""
    found = powers_of(batches)
    return None if found is None else Judgement(*found)


def powers_of(batches: Iterable[Compared]) -> Reals | None:
    """Squares sample by sample: of the float model's outputs, and of what each other model misses.

    Each output is in units of its own power, all samples together: hidden states are thousands of
    numbers and scores two, so that the sum of squares as they are would hear the states alone. So
    is each part of an output (`PartSums`): scores beside boxes, in one tensor.

    Args:
        batches: of the same number of models each, and the same outputs.
    Returns:
        (models, samples), sums over the outputs, of which one that float gives as zeros, or
        not finite, adds nothing: it has no units; None where there is no output of floats.
    """
    outputs: list[_Squares] = []
    for samples, arrays in (batch for batch in batches if batch[1]):
        outputs = outputs or [_Squares() for _ in arrays]
        is_by_sample = all(a.ndim and len(a) == samples for each in arrays for a in each)
        for output, each in zip(outputs, arrays, strict=True):
            output.add(each, samples if is_by_sample else 1)
    if not outputs:
        return None
    squares = np.stack([part for output in outputs for part in output.parts()])
    power = squares[:, 0].sum(axis=1)[:, np.newaxis, np.newaxis]
    has_units = (power > 0) & np.isfinite(power)
    shares = np.divide(squares, power, out=np.zeros_like(squares), where=has_units)
    return np.asarray(shares.sum(axis=0), np.float64)


class _Squares:
    """Squares of an output, and of what each other model misses of it, as batches come."""

    def __init__(self) -> None:
        self._whole: list[Reals] = []
        self._slices: dict[int, list[Reals]] = {}
        self._sums, self._is_by_sample = PartSums(), True

    def add(self, output: tuple[Array, ...], rows: int) -> None:
        """Adds a batch of so many samples: the float model's output, and those of the others."""
        squares = [np.square(each) for each in _errors(output)]
        self._whole.append(np.array([each.reshape(rows, -1).sum(axis=1) for each in squares]))
        self._is_by_sample &= rows == len(np.atleast_1d(output[0]))
        if not self._is_by_sample:
            return
        self._sums.update(output[0], output[0])
        for axis in self._sums.axes:
            others = tuple(a for a in range(1, output[0].ndim) if a != axis)
            by_slice = np.array([each.sum(axis=others) for each in squares])
            self._slices.setdefault(axis, []).append(by_slice)

    def parts(self) -> list[Reals]:
        """(models, samples) of each part, or of the whole where the output is one."""
        parts = self._sums.parts() if self._is_by_sample else []
        if not parts:
            return [np.concatenate(self._whole, axis=1)]
        by_slice = np.concatenate(self._slices[parts[0].axis], axis=1)
        squares = [by_slice[:, :, list(part.slices)].sum(axis=2) for part in parts]
        named = [i for part in parts for i in part.slices]  # zeros, and scores never taken, are not
        squares[-1][1:] += np.delete(by_slice[1:], named, axis=2).sum(axis=2)
        return squares


def _errors(output: tuple[Array, ...]) -> list[Reals]:
    """The output of the float model, and what the others miss of it."""
    wanted, *others = (np.asarray(array, np.float64) for array in output)
    with np.errstate(invalid="ignore"):  # infinities of masks are no numbers to compare
        return [wanted, *(wanted - got for got in others)]


# --- Samples that PTQ algorithms look at, and those that judge them: the last of each four batches


ENOUGH_SAMPLES = 128
"""Below it, means and covariances of few samples are what algorithms fit: said in the report."""
LEAST_BATCHES = 16
"""Pieces that fewer than HANDFUL batches are cut into, about: four of them judge."""
LOOKED_AT = 4
"""By default one row in so many is looked at, where that is more than ENOUGH_SAMPLES."""
MOST_SAMPLES = 1024
"""More are thinned out, evenly: they are kept in memory, and weights gain no more by them."""


def too_few(batches: Sequence[Batch]) -> str:
    """Reason why none of so few batches can be held back; the empty string: one can."""
    if len(batches) >= EVERY:
        return ""
    return f"{len(batches)} batches of samples: wanted {EVERY} or more, to hold one back to judge"


def enough(samples: Batches, prepared: Prepared) -> list[Batch]:
    """The batches to look at, cut into smaller ones where there are too few to hold some back."""
    if prepared.feedback:
        return list(_first(samples))
    return list(thinned(in_smaller_batches(samples, prepared), MOST_SAMPLES))


def in_smaller_batches(samples: Batches, prepared: Prepared) -> Batches:
    """The samples in batches of which some can be held back, if the model takes any number of rows.

    Few large batches, as a DataLoader gives them, are cut into LEAST_BATCHES pieces or more.
    """
    if samples.count is None or not 0 < samples.count < HANDFUL or prepared.feedback:
        return samples
    first = next(iter(samples))
    if rows_of(first) == 1 or not has_dynamic_batch(prepared.inputs):
        return samples
    if rows_of(one_row(prepared.model, prepared.inputs, first)) > 1:  # a constant fixes it
        return samples
    pieces = -(-LEAST_BATCHES // samples.count)

    def cut() -> Iterator[Batch]:
        return (part for batch in samples for part in _cut(batch, pieces))

    return Batches(samples.where, sum(1 for _ in cut()), cut)


def _first(samples: Batches) -> Iterator[Batch]:
    """The first batches, MOST_SAMPLES or a few more in all."""
    rows = 0
    for batch in samples:
        yield batch
        rows += rows_of(batch)
        if rows >= MOST_SAMPLES:
            return


def row_count(samples: Batches) -> int:
    """Rows of all batches, if they are alike."""
    first = next(iter(samples), None)
    count = sum(1 for _ in samples) if samples.count is None else samples.count
    return 0 if first is None else count * rows_of(first)


def enough_of(rows: int) -> int:
    """Rows that algorithms look at by default, of so many: a quarter, or up to ENOUGH_SAMPLES."""
    return max(ENOUGH_SAMPLES, rows // LOOKED_AT)


def thinned(samples: Batches, most: int) -> Batches:
    """Batches of so many rows at most, evenly spread; EVERY batches at least, where there are."""
    first = next(iter(samples), None)
    if first is None or samples.count == 0:
        return samples
    count = sum(1 for _ in samples) if samples.count is None else samples.count
    wanted = min(count, max(most // max(rows_of(first), 1), EVERY))

    def spread() -> Iterator[Batch]:
        return (batch for i, batch in enumerate(samples) if i * wanted % count < wanted)

    return Batches(samples.where, wanted, spread)


def left_over(samples: Batches, most: int) -> list[Batch]:
    """Batches that `thinned` leaves out, ENOUGH_SAMPLES rows of them at most, evenly spread."""
    count, wanted = samples.count or 0, thinned(samples, most).count or 0
    out = [i for i in range(count) if i * wanted % count >= wanted]
    rows = rows_of(next(iter(samples))) if out else 1
    number = min(len(out), max(ENOUGH_SAMPLES // rows, 1))
    chosen = {out[i * len(out) // number] for i in range(number)}
    return [batch for i, batch in enumerate(samples) if i in chosen]


def _cut(batch: Batch, pieces: int) -> list[Batch]:
    """The batch in so many pieces of nearly equal length, fewer where it has fewer rows."""
    rows = rows_of(batch)
    edges = [rows * i // min(pieces, rows) for i in range(min(pieces, rows) + 1)]
    return [{name: x[a:b] for name, x in batch.items()} for a, b in itertools.pairwise(edges)]
