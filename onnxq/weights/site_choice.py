"""The exponent that serves a site best, by the measured error of its products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.affine import fake_quantize
from onnxq.graph.weights import constant_array
from onnxq.observers.tensor_noise import decibels
from onnxq.operator.nodes import input_at
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.quantized.outcome import Outcome
from onnxq.weights.held_back import is_held_back
from onnxq.weights.integer_products import at_run_time, integer_products
from onnxq.weights.layerwise import all_feeds
from onnxq.weights.smoothing import (
    EXPONENTS,
    Product,
    product_noise,
    reach,
    row_noise,
    smoothing_factors,
    varying_noise,
)
from onnxq.weights.smoothing_sites import along

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.core.arrays import Reals, Singles
    from onnxq.samples.inputs import Batch
    from onnxq.static.prepared import Prepared
    from onnxq.weights.integer_products import IntegerProduct
    from onnxq.weights.smoothing import Noise, Rounding
    from onnxq.weights.smoothing_sites import Site
    from onnxq.weights.smoothing_trial import Flow

MOST_ROWS = 1024
"""Rows of all samples that a site looks at to choose, evenly spread; of images, places."""
WINDOW = 16
"""Pixels along each axis of an image, from its middle, that a site looks at."""
MUL_GAIN_DB = 1.0
"""Gain from which on a Mul, an element-wise pass over the tensor, is worth its time."""
NO_HELP = "no exponent loses less"
NO_GAIN = "the outputs do not gain by it"


@dataclass(frozen=True, slots=True, eq=False)
class SiteChoice:
    """A site with the factors that serve it best.

    Attributes:
        site: where.
        factors: (channels,); None: none help.
        before_db: SQNR of its products without them, on samples held back.
        after_db: likewise with them.
        exponent: that gives them.
        is_corrected: whether the biases of all its products are corrected behind.
    """

    site: Site
    factors: Reals | None
    before_db: float
    after_db: float
    exponent: float
    is_corrected: bool

    def outcome(self, improvement: str, *, kept: bool) -> Outcome:
        """Outcome of the site."""
        where = "folded into constants ahead" if self.site.folds else "a Mul ahead"
        why = f"exponent {self.exponent:g}, {where}" if kept else NO_GAIN
        if self.factors is None:
            why = NO_HELP
        return Outcome(improvement, self.site.tensor, kept, self.before_db, self.after_db, why)


def site_choices(flow: Flow, sites: Sequence[Site]) -> list[SiteChoice]:
    """The choice of every site, each on its own, with the others as they are.

    Args:
        flow: that the model will be made by.
        sites: where factors can be.
    """
    found = integer_products(flow.prepared, flow.objective)
    return [
        _choice(site, seen, [found[name] for name in site.readers], flow)
        for site, seen in _seen(flow.prepared, sites, flow.batches)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A tensor in some batches of the float model.

    Attributes:
        x: places of it, with the channels on the site's axis.
        maxima: (batches, channels), largest magnitude of each channel, over all places.
    """

    x: Singles
    maxima: Reals

    @classmethod
    def of(cls, x: Singles, axis: int, most: int) -> _Part:
        """The part of one batch; at most about so many places of it are kept."""
        others = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
        kept = _spread_rows(x, most) if axis == -1 else _cropped(x, most)
        return cls(kept, np.abs(x).max(others).astype(np.float64)[np.newaxis])

    @classmethod
    def joined(cls, parts: Sequence[_Part]) -> _Part:
        """All parts as one."""
        x, maxima = ([getattr(part, name) for part in parts] for name in ("x", "maxima"))
        return cls(np.concatenate(x), np.concatenate(maxima))


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Parts of a tensor: two to choose an exponent by, and one that judges."""

    first: _Part
    second: _Part
    held: _Part


def _seen(
    prepared: Prepared, sites: Sequence[Site], batches: Sequence[Batch]
) -> Iterator[tuple[Site, _Seen]]:
    """Each site with what its tensor is in the float model."""
    inputs = {value.name for value in prepared.model.graph.inputs}
    inner = [site.tensor for site in sites if site.tensor not in inputs]
    exposed = expose(prepared.model, inner)
    kept: list[tuple[list[_Part], list[_Part]]] = [([], []) for _ in sites]
    held = sum(map(is_held_back, range(len(batches))))
    with runtime.open_session(exposed.model, threads=1) as session:
        for index, feeds in enumerate(all_feeds(prepared, batches)):
            got = dict(zip(inner, session.run(feeds, list(exposed.outputs.values())), strict=True))
            share = held if is_held_back(index) else len(batches) - held
            most = -(-MOST_ROWS // max(share, 1))
            for site, parts in zip(sites, kept, strict=True):
                x = {**feeds, **got}[site.tensor].astype(np.float32, copy=False)
                parts[is_held_back(index)].append(_Part.of(x, site.axis, most))
    for site, (seen, judging) in zip(sites, kept, strict=True):
        yield site, _Seen(*map(_Part.joined, (seen[::2], seen[1::2], judging)))


def _spread_rows(x: Singles, most: int) -> Singles:
    """Rows of x (rows, channels), evenly spread, and the one with the largest value of all."""
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) <= most:
        return np.array(rows, np.float32)
    places = np.linspace(0, len(rows) - 1, most).astype(np.int64)
    return np.array(rows[np.union1d(places, np.abs(rows).max(1).argmax())], np.float32)


def _cropped(x: Singles, most: int) -> Singles:
    """The middle of images (images, channels, *spatial): as many as give `most` places, or one."""
    middle = tuple(slice((n - min(n, WINDOW)) // 2, (n + min(n, WINDOW)) // 2) for n in x.shape[2:])
    part = x[(slice(None), slice(None), *middle)]
    places = int(np.prod(part.shape[2:]))
    return np.array(part[: max(1, most // max(places, 1))], np.float32)


def _choice(site: Site, seen: _Seen, readers: Sequence[IntegerProduct], flow: Flow) -> SiteChoice:
    """The exponent whose products lose least, judged on the part held back.

    An exponent near 1 brings every channel to the very range that it had: what another sample has
    beyond it is cut off. So each is tried on other samples than its factors and scales are made of.
    """
    products = [_product(reader, site.axis, _noise_of(reader, flow)) for reader in readers]
    spec = next((r.observer for r in readers if r.observer is not None), None)
    channels, rank = seen.first.maxima.shape[1], seen.first.x.ndim
    w_max = np.max([p.largest(channels) for p in products], 0)

    def made(part: _Part, exponent: float) -> tuple[Reals, Rounding]:
        factors = np.ones(channels)
        if exponent:
            factors = smoothing_factors(reach(part.maxima), w_max, exponent)
        if spec is None:
            return factors, at_run_time
        observer = spec()
        observer.observe((part.x / along(factors, site.axis, rank)).astype(np.float32), 0)
        grid = observer.calculate_qparams()
        return factors, lambda values: fake_quantize(values, grid)

    def noise(made_of: _Part, tried_on: _Part, exponent: float) -> float:
        return product_noise(tried_on.x, *made(made_of, exponent), products, site.axis)

    noises = {a: noise(seen.first, seen.second, a) for a in (0.0, *EXPONENTS)}
    best = min(noises, key=lambda a: noises[a])
    both = _Part.joined([seen.first, seen.second])
    before, after = (decibels(1.0, noise(both, seen.held, a)) for a in (0.0, best))
    helps = after - before > (0.0 if site.folds else MUL_GAIN_DB)
    factors = made(both, best)[0] if helps else None
    is_corrected = all(product.noise is varying_noise for product in products)
    return SiteChoice(site, factors, before, after, best, is_corrected)


def _noise_of(product: IntegerProduct, flow: Flow) -> Noise:
    """The noise that counts: what is left behind the improvements that follow."""
    return varying_noise if flow.corrects_biases and product.has_bias else row_noise


def _product(found: IntegerProduct, axis: int, noise: Noise) -> Product:
    node, slot = found.node, found.slot
    operator = catalog.find(node.op_type, node.domain)
    assert operator is not None
    unfolded, x = operator.unfolded(node), input_at(node, 0)
    assert unfolded is not None
    assert x.shape is not None
    rank = len(x.shape)

    def undone(factors: Reals) -> Reals:
        way = operator.undone(node, along(factors, axis, rank))
        assert way is not None  # of a site
        return way[slot]

    def rows(seen: Singles) -> Singles:
        return unfolded.rows(seen, slice(0, unfolded.places(seen)))

    weight = np.asarray(constant_array(input_at(node, slot)), np.float32)
    return Product(weight, undone, found.rounded, rows, unfolded.matrix, noise)
