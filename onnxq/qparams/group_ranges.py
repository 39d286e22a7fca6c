"""Range of each group with the least squared error: scales are searched, then fitted.

    least over (s, z) of    sum_i p_i e_i^2 + a (sum_i e_i)^2        e_i = w_i - (q_i - z) s
    q_i = clip(rint(w_i / s + z), 0, 2^bits - 1)

A range that holds every weight is too wide for the many that lie in its middle. So narrower ones
are tried, each with the two whole zero points around its centre, or with the centre itself where
zero points are real; symmetric ones with scales of both signs. Of the best one, the scale becomes
that of least squares for its integers, and so does a real zero point; then these are rounded again.

Inputs that are alike, as the pixels of a patch, add the errors of their weights up before they are
squared: that is what `a` counts.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onnxq.core.arrays import Singles
from onnxq.qparams import MIN_SCALE
from onnxq.qparams.group_spec import GroupSpec, Scheme
from onnxq.qparams.groups import GroupIntegers, Points

SHARES = {
    2: np.linspace(0.35, 1.0, 9, dtype=np.float32),
    4: np.linspace(0.64, 1.0, 7, dtype=np.float32),
    8: np.ones(1, np.float32),  # 256 integers hold the largest weight for next to nothing
}
"""Parts of the whole range that are tried, by bits."""
NEAR = {
    2: np.linspace(0.94, 1.06, 5, dtype=np.float32),
    4: np.linspace(0.94, 1.06, 7, dtype=np.float32),
    8: np.linspace(0.97, 1.03, 13, dtype=np.float32),
}
"""Factors of the best scale that are tried then, each with the zero points beside the best one."""
SHIFTS = {
    Scheme.AFFINE: (0.0, -1.0, 1.0),
    Scheme.SYMMETRIC: (0.0,),
    Scheme.REAL: (0.0, -0.25, 0.25),
}
"""Distances from the best zero point that are tried with them."""
FITS = 2
"""Times that the scale is fitted and integers are rounded again; the error never grows."""
CHUNK = 1 << 16
"""Weights that are looked at together: the arrays of a try stay in a core's cache."""


def search_ranges(
    weight: Singles, spec: GroupSpec, importance: Singles | None = None, alike: float = 0.0
) -> tuple[Singles, Points]:
    """(scale, zero point) of each group, float32 and as in `GroupIntegers` (rows, groups).

    Args:
        weight: float32 (rows, inputs).
        spec: form of the integers.
        importance: float32 (inputs,), p above; None: 1.
        alike: a above, for inputs that are much the same.
    """
    w, p = in_groups(weight, spec.group_size), None
    is_short = spec.scheme is Scheme.REAL and weight.shape[1] % spec.group_size
    if importance is not None or is_short:  # what fills a short group up has an error then
        p = np.ones(weight.shape[1], np.float32) if importance is None else importance
        p = in_groups(p[np.newaxis], spec.group_size)
    scale = np.empty(w.shape[:2], np.float32)
    is_real = spec.scheme is Scheme.REAL
    point: Points = np.empty(w.shape[:2], np.float32 if is_real else np.uint8)
    rows = max(1, CHUNK // max(1, w[0].size)) if len(w) else 1
    for start in range(0, len(w), rows):
        part = slice(start, start + rows)
        scale[part], point[part] = _searched(w[part], p, spec, alike)
    return scale, point


def rounded(weight: Singles, spec: GroupSpec, scale: Singles, point: Points) -> GroupIntegers:
    """Integers nearest to a weight (rows, inputs) in given ranges."""
    group_of = np.arange(weight.shape[1]) // spec.group_size
    steps, zero = weight / scale[:, group_of], point[:, group_of]
    # whole zero points are added behind the rounding, as QuantizeLinear has it
    raw = np.rint(steps + zero) if spec.scheme is Scheme.REAL else np.rint(steps) + zero
    return GroupIntegers(spec, np.clip(raw, 0, spec.most).astype(np.uint8), scale, point)


def unshrunk(
    weight: Singles, integers: GroupIntegers, importance: Singles | None = None
) -> GroupIntegers:
    """The same integers with the scales of each row raised, so that errors shrink no weights.

        f = sum_i p_i w_i^2 / sum_i p_i w_i v_i        v_i integer i; then v_i f

    Least squares leaves e orthogonal to v, so that v is w times 1 - |e|^2 / |w|^2 and something
    unlike w. Errors that are unlike cancel out from layer to layer; those that make every weight
    smaller do not, and 2 bits lose a tenth in each.

    Args:
        weight: float32 (rows, inputs) that the integers are of.
        integers: in ranges of least squares.
        importance: float32 (inputs,), p above; None: 1.
    """
    w, v = weight.astype(np.float64), integers.dequantized
    weighted = w if importance is None else w * importance
    over, under = (np.einsum("ri,ri->r", weighted, x) for x in (w, v))
    factor = np.divide(over, under, out=np.ones_like(over), where=(under > 0) & (over > 0))
    scale = np.asarray(integers.scale * factor[:, np.newaxis], np.float32)
    return replace(integers, scale=scale)


def in_groups(weight: Singles, size: int) -> Singles:
    """float32 (rows, groups, size), the last group filled up with zeros."""
    rows, inputs = weight.shape
    count = -(-inputs // size)
    if count * size == inputs:
        return np.asarray(weight, np.float32).reshape(rows, count, size)
    padded = np.zeros((rows, count * size), np.float32)
    padded[:, :inputs] = weight
    return padded.reshape(rows, count, size)


def _not_zero(scale: Singles) -> Singles:
    """Scales at least MIN_SCALE away from 0, float32; of -0.0, too, a positive one."""
    least = np.where(scale < 0, -MIN_SCALE, MIN_SCALE)
    return np.asarray(np.where(np.abs(scale) < MIN_SCALE, least, scale), np.float32)


class _Best:
    """The range with the least error of each group so far; float32 (groups,).

    Arrays are (group, groups): NumPy's loops run along many groups, not along one.

    Args:
        w: float32 (group, groups).
        p: what errors count, of the same shape; None: all the same.
        spec: form of the integers.
        alike: what the square of a group's summed errors counts.
    """

    def __init__(self, w: Singles, p: Singles | None, spec: GroupSpec, alike: float) -> None:
        self._w, self._p, self._most = w, p, np.float32(spec.most)
        self._is_real, self._alike = spec.scheme is Scheme.REAL, np.float32(alike)
        self._scaled, self._work = np.empty_like(w), np.empty_like(w)
        self.error = np.full(w.shape[1], np.inf, np.float32)
        self.scale = np.ones_like(self.error)
        self.point = np.zeros_like(self.error)

    def integers(self, scale: Singles, point: Singles) -> Singles:
        """Centred integers, q - z; overwritten by the next call, which leaves w / s beside them."""
        scaled, work = self._scaled, self._work
        np.multiply(self._w, np.float32(1) / scale, out=scaled)
        np.rint(scaled + point if self._is_real else scaled, out=work)
        if self._is_real:
            work -= point
        np.maximum(work, -point, out=work)
        np.minimum(work, self._most - point, out=work)
        return work

    def offer(self, scale: Singles, point: Singles) -> None:
        """Takes the range where it is better."""
        left = self.integers(scale, point)
        left -= self._scaled
        total = None
        if self._alike:
            total = (left if self._p is None else left * (self._p > 0)).sum(0)
        np.multiply(left, left, out=left)
        if self._p is not None:
            left *= self._p
        error = left.sum(0)
        if total is not None:
            error += self._alike * np.square(total)
        error *= scale
        error *= scale
        better = error < self.error
        np.copyto(self.error, error, where=better)
        np.copyto(self.scale, scale, where=better)
        np.copyto(self.point, point, where=better)

    def fit(self) -> None:
        """Offers the ranges of least squares for the integers of the best ones."""
        if self._is_real:
            self._fit_both()
            return
        q = self.integers(self.scale, self.point)
        weighted = q if self._p is None else q * self._p
        over, under = (weighted * self._w).sum(0), (weighted * q).sum(0)
        good = (over * self.scale > 0) & (under > 0)
        fitted = np.divide(over, under, out=self.scale.copy(), where=good)
        self.offer(_not_zero(fitted), self.point)

    def _fit_both(self) -> None:
        """Offers scales and zero points: the line of least squares, w = scale q - offset."""
        q = self.integers(self.scale, self.point) + self.point
        p = np.ones_like(q) if self._p is None else self._p
        total = np.maximum(p.sum(0), MIN_SCALE)
        middle, centre = ((p * x).sum(0) / total for x in (q, self._w))
        apart = (q - middle) * p
        over, under = (apart * (self._w - centre)).sum(0), (apart * (q - middle)).sum(0)
        fitted = np.divide(over, under, out=self.scale.copy(), where=(over > 0) & (under > 0))
        scale = _not_zero(fitted)
        self.offer(scale, middle - centre / scale)


def _searched(
    w: Singles, p: Singles | None, spec: GroupSpec, alike: float
) -> tuple[Singles, Points]:
    """(scale, zero point) of each group, (rows, groups), of weights (rows, groups, group)."""
    turned = [
        np.ascontiguousarray(np.broadcast_to(x, w.shape).reshape(-1, w.shape[2]).T)
        for x in (w, p)
        if x is not None
    ]
    best = _Best(turned[0], None if p is None else turned[1], spec, alike)
    low, high = turned[0].min(0), turned[0].max(0)
    if spec.scheme is not Scheme.REAL:  # whole zero points lie among the integers
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    with np.errstate(over="ignore"):
        for share in SHARES[spec.bits]:
            for scale, point in _ranges(low, high, share, spec):
                best.offer(_not_zero(scale), point)
        scale, point = best.scale.copy(), best.point.copy()
        for factor in NEAR[spec.bits]:
            for shift in SHIFTS[spec.scheme]:
                moved = point + np.float32(shift)
                if spec.scheme is Scheme.REAL:  # the centre of the range stays
                    moved = spec.most / 2 + (moved - spec.most / 2) / factor
                else:
                    moved = np.clip(moved, 0, spec.most)
                best.offer(_not_zero(scale * factor), moved)
        for _ in range(FITS):
            best.fit()
    scale, point = (x.reshape(w.shape[:2]) for x in (best.scale, best.point))
    return scale, point if spec.scheme is Scheme.REAL else point.astype(np.uint8)


def _ranges(
    low: Singles, high: Singles, share: np.float32, spec: GroupSpec
) -> Iterator[tuple[Singles, Singles]]:
    """(scale, zero point) of that share of the whole range, around its centre."""
    if spec.symmetric:
        above, below = np.float32(spec.middle - 1), np.float32(spec.middle)
        middle = np.full_like(high, spec.middle)
        yield share * np.maximum(high / above, -low / below), middle
        if spec.signed:
            yield -share * np.maximum(high / below, -low / above), middle
        return
    scale = np.maximum(share * (high - low) / np.float32(spec.most), MIN_SCALE)
    centre = spec.most / 2 - (low + high) / 2 / scale
    if spec.scheme is Scheme.REAL:
        yield scale, centre
        return
    centre = np.clip(centre, 0, spec.most)
    yield scale, np.floor(centre)
    yield scale, np.ceil(centre)
