"""Factors that smooth the input of linear layers, and the exponent that serves a site best.

    Y = X W = (X diag(1/s)) (diag(s) W),      s[j] = max|X[:, j]|^a / max|W[j, :]|^(1 - a)

One scale holds all channels of X, so that a few large ones leave the others few integers; W has a
scale per column, which a large row widens. With a = 1 all channels of X get one range, with a = 0
all rows of W. (Xiao et al. 2022, "SmoothQuant", equation 4.) Which a is best depends on both
distributions: what activations gain, weights pay for (benchmarks/results/smooth.md). So each is
tried with the very quantizers, and what decides is the error of the layer's result, row by row

    mean over rows r of |Yq[r] - Y[r]|^2 / |Y[r]|^2

since a normalization behind brings every row, which is a token, to one size: a few tokens with huge
values would otherwise decide alone.

Where a bias is corrected behind, it takes the mean of E = Yq - Y away, most of which is W's, whose
rounding errs on the mean of X in every row. So E - mean(E) decides, and exponents become larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq import catalog
from onnxq.affine import fake_quantize
from onnxq.core.arrays import Reals, Singles
from onnxq.graph.weights import constant_array
from onnxq.observers import ObserverSpec
from onnxq.observers.tensor_noise import decibels
from onnxq.operator.nodes import input_at
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.quantized.outcome import Outcome
from onnxq.samples.excerpt import is_held_apart
from onnxq.static.noise.sensitive import TYPICAL_NOISE
from onnxq.weights.integer_layers import IntegerLayer, at_run_time, integer_layers
from onnxq.weights.layerwise import all_feeds
from onnxq.weights.smoothing_run import Flow
from onnxq.weights.smoothing_sites import SmoothingSite, along

Rounding = Callable[[Singles], Singles]
"""Gives an array as its integers would have it."""
Noise = Callable[[Singles, Singles], float]
"""Error of rows, beside what was wanted."""

EXPONENTS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Exponents that are tried beside none; errors change by less than half a dB between neighbours."""
SMALLEST = 2.0**-20
"""Share of the largest magnitude that a channel or a row counts as at least, for finite factors."""
QUIET = 1e-3
"""Share of the median row's power that a row counts as at least: below, its error is nothing."""

OUTPUTS = 256
"""Outputs of a weight that are looked at, evenly spread: an error of X is in all of them alike."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearLayer:
    """One of the linear layers that read X.

    Attributes:
        weight: float32, as its node has it.
        undone: factors of the weight, which broadcast, that undo those that X is divided by.
        rounded: the weight as its integers would have it.
        rows: X in matrices (groups, places, inputs).
        matrix: the weight in matrices (groups, outputs, inputs).
        noise: of its results.
    """

    weight: Singles
    undone: Callable[[Reals], Reals]
    rounded: Rounding
    rows: Callable[[Singles], Singles]
    matrix: Callable[[Singles], Singles]
    noise: Noise

    def results(self, seen: Singles, weight: Singles) -> Singles:
        """(groups, places, outputs), some OUTPUTS of them."""
        matrix = self.matrix(weight)
        some = matrix[:, :: max(1, matrix.shape[1] // OUTPUTS)]
        return np.asarray(np.matmul(self.rows(seen), some.swapaxes(1, 2)), np.float32)

    def noises(self, wanted: Singles, divided: Singles, factors: Reals) -> list[float]:
        """Noise of its results on X / s, as rounded, by s W, rounded: one number per group."""
        weight = self.rounded((self.weight * self.undone(factors)).astype(np.float32))
        return list(map(self.noise, wanted, self.results(divided, weight)))

    def largest(self, channels: int) -> Reals:
        """(channels,): largest magnitude that the weight has for each channel of X."""
        labels = np.rint(self.undone(np.arange(1.0, channels + 1))).astype(np.int64) - 1
        labels = labels.reshape((1,) * (self.weight.ndim - labels.ndim) + labels.shape)
        alike = tuple(axis for axis, size in enumerate(labels.shape) if size == 1)
        most, found = np.abs(self.weight).max(alike, keepdims=True), np.zeros(channels)
        np.maximum.at(found, labels, most)
        return found


def smoothing_scales(x_max: Reals, w_max: Reals, exponent: float) -> Reals:
    """S = x_max^a / w_max^(1 - a), shape (channels,), all above 0."""
    x, w = (np.maximum(v, SMALLEST * max(float(v.max(initial=0.0)), 1e-30)) for v in (x_max, w_max))
    return np.asarray(x**exponent / w ** (1 - exponent), np.float64)


def expected_maxima(maxima: Reals) -> Reals:
    """Magnitude that each channel may have in samples to come, (channels,).

    Half as many samples found less, by some factor; as many again may find more by as much:

        r[j] = m[j] * m[j] / l[j]        m, l: the larger and the smaller of the halves' maxima

    A channel that speaks always has r = m, or little more. One that hardly ever does is not blown
    up by what it happened to be, since a single sample with 30 times as much would then widen the
    one range of the tensor; none is taken for larger than the largest is.
    """
    if len(maxima) < 2:
        return np.asarray(maxima.max(0))
    halves = np.stack([maxima[::2].max(0), maxima[1::2].max(0)])
    most, least = halves.max(0), halves.min(0)
    grown = np.divide(most * most, least, out=np.full_like(most, np.inf), where=least > 0)
    return np.asarray(np.minimum(grown, most.max()), np.float64)


def row_noise(wanted: Singles, got: Singles) -> float:
    """Mean over rows of error power over power; arrays (rows, columns)."""
    power = np.square(wanted, dtype=np.float64).sum(1)
    error = np.square(got - wanted, dtype=np.float64).sum(1)
    least = QUIET * float(np.median(power)) if power.size else 0.0
    seen = power > 0
    return float((error[seen] / np.maximum(power[seen], least)).mean()) if seen.any() else 0.0


def varying_noise(wanted: Singles, got: Singles) -> float:
    """`row_noise` of what is left when a bias has taken the mean of the errors away."""
    return row_noise(wanted, got - (got - wanted).mean(0))


MOST_ROWS = 1024
"""Rows of all samples that a site looks at to choose, evenly spread."""
FEW_ROWS = 128
"""Rows that `outliers_cost` looks at."""
LESS = 1.5
"""Noise over that with factors from which on `outliers_cost` says that they are worth trying."""
USUAL = (0.5, 0.8)
"""Exponents that `outliers_cost` tries: the paper's, and one that leaves more to the weight."""
MUL_GAIN_DB = 1.0
"""Gain from which on a Mul, an element-wise pass over the tensor, is worth its time."""
NO_HELP = "no exponent loses less"
NO_GAIN = "the outputs do not gain by it"


@dataclass(frozen=True, slots=True, eq=False)
class SiteChoice:
    """A site with the factors that serve it best.

    Attributes:
        factors: (channels,); None: none help.
        before_db: SQNR of its readers without them, on samples held back.
        after_db: likewise with them.
        is_corrected: whether the biases of all its readers are corrected behind.
    """

    site: SmoothingSite
    factors: Reals | None
    before_db: float
    after_db: float
    exponent: float
    is_corrected: bool

    def outcome(self, algorithm: str, *, kept: bool) -> Outcome:
        """Outcome of the site."""
        where = "folded into constants ahead" if self.site.folds else "a Mul ahead"
        why = f"exponent {self.exponent:g}, {where}" if kept else NO_GAIN
        if self.factors is None:
            why = NO_HELP
        return Outcome(algorithm, self.site.tensor, kept, self.before_db, self.after_db, why)


def site_choices(flow: Flow, inputs: Mapping[SmoothingSite, SiteInput]) -> list[SiteChoice]:
    """The choice of every site, each on its own, with the others as they are."""
    found = integer_layers(flow.prepared, flow.objective)
    return [
        _choice(site, seen, [found[name] for name in site.readers], flow)
        for site, seen in inputs.items()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A tensor in some batches of the float model.

    Attributes:
        x: places of it, with the channels on the last axis.
        maxima: (batches, channels), largest magnitude of each channel, over all places.
    """

    x: Singles
    maxima: Reals

    @classmethod
    def of(cls, x: Singles, most: int) -> _Part:
        """The part of one batch; at most about so many places of it are kept."""
        others = tuple(range(x.ndim - 1))
        return cls(_spread_rows(x, most), np.abs(x).max(others).astype(np.float64)[np.newaxis])

    def some(self, most: int) -> _Part:
        """About so many places of it at most, the place with the largest value among them."""
        return _Part(_spread_rows(self.x, most), self.maxima)

    @classmethod
    def joined(cls, parts: Sequence[_Part]) -> _Part:
        """All parts as one."""
        x, maxima = ([getattr(part, name) for part in parts] for name in ("x", "maxima"))
        return cls(np.concatenate(x), np.concatenate(maxima))


@dataclass(frozen=True, slots=True, eq=False)
class SiteInput:
    """Parts of a site's tensor: two to choose an exponent by, and one that judges."""

    first: _Part
    second: _Part
    held: _Part


def site_inputs(flow: Flow, sites: Sequence[SmoothingSite]) -> dict[SmoothingSite, SiteInput]:
    """Each site with what its tensor is in the float model, in about MOST_ROWS rows of a part."""
    prepared, batches = flow.prepared, flow.batches
    inputs = {value.name for value in prepared.model.graph.inputs}
    inner = [site.tensor for site in sites if site.tensor not in inputs]
    exposed = expose(prepared.model, inner)
    kept: list[tuple[list[_Part], list[_Part]]] = [([], []) for _ in sites]
    held = sum(map(is_held_apart, range(len(batches))))
    with runtime.open_session(exposed.model, threads=1) as session:
        for index, feeds in enumerate(all_feeds(prepared, batches)):
            got = session.run_named(feeds, exposed.outputs)
            share = held if is_held_apart(index) else len(batches) - held
            most = -(-MOST_ROWS // max(share, 1))
            for site, parts in zip(sites, kept, strict=True):
                x = {**feeds, **got}[site.tensor].astype(np.float32, copy=False)
                parts[is_held_apart(index)].append(_Part.of(x, most))
    return {
        site: SiteInput(*map(_Part.joined, (seen[::2], seen[1::2], judging)))
        for site, (seen, judging) in zip(sites, kept, strict=True)
    }


def _spread_rows(x: Singles, most: int) -> Singles:
    """Rows of x (rows, channels), evenly spread, and the one with the largest value of all."""
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) <= most:
        return np.array(rows, np.float32)
    places = np.linspace(0, len(rows) - 1, most).astype(np.int64)
    return np.array(rows[np.union1d(places, np.abs(rows).max(1).argmax())], np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """Layers that read a site, and how their input is rounded.

    Attributes:
        observer: of the input; None: each run takes the range of what it sees.
        w_max: (channels,), largest magnitude of the weights for each channel.
    """

    layers: Sequence[LinearLayer]
    observer: ObserverSpec | None
    w_max: Reals

    @classmethod
    def of(cls, readers: Sequence[IntegerLayer], channels: int, flow: Flow) -> _Reading:
        """Collects the weights of these readers."""
        # the noise that counts: what is left behind the PTQ algorithms that follow
        varies = [flow.corrects_biases and reader.has_bias for reader in readers]
        noises = [varying_noise if each else row_noise for each in varies]
        layers = [_linear_layer(*pair) for pair in zip(readers, noises, strict=True)]
        observer = next((r.observer for r in readers if r.observer is not None), None)
        return cls(layers, observer, np.max([each.largest(channels) for each in layers], 0))

    def made(self, part: _Part, exponent: float) -> tuple[Reals, Rounding]:
        """Factors of that exponent, and the rounding of the input, as this part has them."""
        factors = np.ones(self.w_max.size)
        if exponent:
            factors = smoothing_scales(expected_maxima(part.maxima), self.w_max, exponent)
        if self.observer is None:
            return factors, at_run_time
        observer = self.observer()
        observer.observe((part.x / factors).astype(np.float32), 0)
        qparams = observer.calculate_qparams()
        return factors, lambda values: fake_quantize(values, qparams)

    def noises(self, made_of: _Part, x: Singles, exponents: Sequence[float]) -> list[float]:
        """Mean noise of the layers' results on X, factors and ranges of another part.

        X / s by s W, both rounded, with each exponent.
        """
        wanted, found = [layer.results(x, layer.weight) for layer in self.layers], []
        for exponent in exponents:
            factors, rounded = self.made(made_of, exponent)
            divided = rounded((x / factors).astype(np.float32))
            pairs = zip(self.layers, wanted, strict=True)
            noises = [n for layer, floats in pairs for n in layer.noises(floats, divided, factors)]
            found.append(float(np.mean(noises)))
        return found


def _choice(
    site: SmoothingSite, seen: SiteInput, readers: Sequence[IntegerLayer], flow: Flow
) -> SiteChoice:
    """The exponent whose readers lose least, judged on the part held back.

    An exponent near 1 brings every channel to the very range that it had: what another sample has
    beyond it is cut off. So each is tried on other samples than its factors and scales are made of.
    """
    reading = _Reading.of(readers, seen.first.maxima.shape[1], flow)
    exponents = (0.0, *EXPONENTS)
    noises = reading.noises(seen.first, seen.second.x, exponents)
    best = exponents[noises.index(min(noises))]
    both = _Part.joined([seen.first, seen.second])
    before, after = (decibels(1.0, n) for n in reading.noises(both, seen.held.x, (0.0, best)))
    helps = after - before > (0.0 if site.folds else MUL_GAIN_DB)
    factors = reading.made(both, best)[0] if helps else None
    is_corrected = all(layer.noise is varying_noise for layer in reading.layers)
    return SiteChoice(site, factors, before, after, best, is_corrected)


def outliers_cost(flow: Flow, inputs: Mapping[SmoothingSite, SiteInput]) -> bool:
    """Whether outlying channels make layers noisy, so that smoothing is worth trying by default.

        mean n(0) > TYPICAL_NOISE        sum n(0) >= LESS sum min n(a), a of 0 and USUAL

    n(a) is the noise of a site with this exponent, in FEW_ROWS rows: a third of all of it would go.
    """
    found = integer_layers(flow.prepared, flow.objective)
    before = after = 0.0
    for site, seen in inputs.items():
        first, second = seen.first.some(FEW_ROWS), seen.second.some(FEW_ROWS)
        readers = [found[name] for name in site.readers]
        reading = _Reading.of(readers, first.maxima.shape[1], flow)
        noises = reading.noises(first, second.x, (0.0, *USUAL))
        before, after = before + noises[0], after + min(noises)
    return before > len(inputs) * TYPICAL_NOISE and before >= LESS * after


def _linear_layer(found: IntegerLayer, noise: Noise) -> LinearLayer:
    node, slot = found.node, found.slot
    operator = catalog.find(node.op_type, node.domain)
    assert operator is not None
    unfolded, x = operator.unfolded(node), input_at(node, 0)
    assert unfolded is not None
    assert x.shape is not None
    rank = len(x.shape)

    def undone(factors: Reals) -> Reals:
        way = operator.undone(node, along(factors, rank))
        assert way is not None  # of a site
        return way[slot]

    def rows(seen: Singles) -> Singles:
        return unfolded.rows(seen, slice(0, unfolded.places(seen)))

    weight = np.asarray(constant_array(input_at(node, slot)), np.float32)
    return LinearLayer(weight, undone, found.rounded, rows, unfolded.matrix, noise)
