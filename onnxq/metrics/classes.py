"""Classes of pixels and of frames beside the float model's: IoU of masks, share of equal frames.

    IoU_k = sum |A_k and B_k| / sum |A_k or B_k|        over all samples; mean over classes k of A

A_k is where the float model says class k, B_k the quantized one. Of one channel, the marked places
are a class; so are those of each channel where probabilities do not add up to 1.
"""

from dataclasses import dataclass, field

import numpy as np

from onnxq.metrics.float_agreement import (
    FloatAgreement,
    Layout,
    LayoutError,
    Numbers,
    Outputs,
    check_one_of,
    no_layout,
    numbers,
)

EXTREME, CERTAIN = 0.1, 0.95
"""A mask has so many of its values so near to 0 or 1; a picture has not."""


@dataclass
class Masks(FloatAgreement[Numbers]):
    """Running IoU of masks; options that are None are derived from shapes and values.

    Attributes:
        output: name; None: the first one with a layout of masks.
        axis: of classes: 1 of (N, C, H, W), 3 of (N, H, W, C).
        threshold: above which a pixel of one channel is marked.
    Raises:
        QConfigError: another axis.
    """

    output: str | None = None
    axis: int | None = None
    threshold: float | None = None
    _counts: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of("axis", self.axis, None, 1, 3)

    def layout_of(self, outputs: Outputs) -> Layout[Numbers]:
        """Labels (N, H, W), or marks (N, C, H, W)."""
        given = numbers(outputs, self.output, "masks")
        for name, x in given.items():
            if x.ndim == 4 or (x.ndim == 3 and (x.dtype.kind in "biu" or self.output)):
                return _layout("masks", name, x, self.axis, self.threshold)
        raise no_layout("masks", "(N, C, H, W), (N, 1, H, W), or integers (N, H, W)", given)

    def add(self, x: Numbers, y: Numbers) -> None:
        """Adds masks of a batch."""
        for label in range(x.shape[1]) if x.dtype == np.bool_ else np.union1d(x, y).tolist():
            a, b = (m[:, label] if m.dtype == np.bool_ else m == label for m in (x, y))
            new = (int((a & b).sum()), int((a | b).sum()), int(a.sum()))
            old = self._counts.get(label, [0, 0, 0])
            self._counts[label] = [i + j for i, j in zip(old, new, strict=True)]

    @property
    def _count(self) -> int:
        """Pixels that the float model marks."""
        return sum(ours for _, _, ours in self._counts.values())

    @property
    def by_class(self) -> dict[int, float]:
        """Class that the float model gives -> its IoU, 0 to 1."""
        counts = self._counts if self.count else {}
        return {k: both / either for k, (both, either, ours) in counts.items() if ours}

    @property
    def value(self) -> float:
        """Mean IoU, 0 to 1."""
        return float(np.mean(list(self.by_class.values()) or [self.BEST]))


@dataclass
class Frames(FloatAgreement[Numbers]):
    """Running share of frames with the same class, or the same marks.

    Attributes:
        output: name; None: the first one with frames.
        axis: of classes, in (N, T, C) or (N, C, T); None: derived.
        threshold: above which a frame of one channel is marked; None: derived.
    Raises:
        QConfigError: another axis.
    """

    output: str | None = None
    axis: int | None = None
    threshold: float | None = None
    _same: int = field(default=0, init=False, repr=False)
    _frames: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of("axis", self.axis, None, 1, 2)

    def layout_of(self, outputs: Outputs) -> Layout[Numbers]:
        """Classes (N, T), or marks (N, C, T)."""
        given = numbers(outputs, self.output, "frames")
        for name, x in given.items():
            if x.ndim in (2, 3):
                return _layout("frames", name, x, self.axis, self.threshold)
        raise no_layout("frames", "floats (N, T, C) or integers (N, T)", given)

    def add(self, x: Numbers, y: Numbers) -> None:
        """Adds the answers of a batch."""
        self._same += int(np.count_nonzero(x == y))
        self._frames += x.size

    @property
    def _count(self) -> int:
        """Frames; marks, where each has several."""
        return self._frames

    @property
    def value(self) -> float:
        """Share of frames with the same answer, 0 to 1."""
        return self._same / self._frames if self.count else self.BEST


def _layout(
    metric: str, name: str, x: Numbers, axis: int | None, threshold: float | None
) -> Layout[Numbers]:
    """Labels, the largest class, or marks above a threshold with the channels at axis 1."""
    place = f"'{name}' {x.shape}: "
    if axis is not None and axis >= x.ndim:
        raise LayoutError(
            f"{metric}: {place}there is no axis {axis}. Say another, or leave it out."
        )
    if x.dtype.kind in "biu":
        return Layout(f"{place}classes", lambda of: of[name].astype(np.int64), {"output": name})
    ones = [a for a in (1, x.ndim - 1) if x.shape[a] == 1 and x.ndim > 2]
    if axis is None and not ones and x.ndim == 3 and metric == "masks":
        at, sure = _threshold(metric, place, x, threshold)
        said = {"output": name, "threshold": at}
        return Layout(f"{place}marked above {at:g}", lambda of: of[name][:, None] > at, said, sure)
    axis = axis or (ones[0] if ones else _class_axis(metric, place, x))
    if x.shape[axis] > 1 and (not _from_0_to_1(x) or _adds_up(x, axis)):
        words = f"{place}the largest of {x.shape[axis]} classes along axis {axis}"
        said, sure = {"output": name, "axis": axis}, _adds_up(x, axis) and x.ndim in (3, 3 + axis)
        return Layout(words, lambda of: of[name].argmax(axis), said, sure)
    at, sure = _threshold(metric, place, x, threshold)
    said = {"output": name, "axis": axis, "threshold": at}
    words = f"{place}marked above {at:g}, {x.shape[axis]} channels along axis {axis}"
    return Layout(words, lambda of: np.moveaxis(of[name] > at, axis, 1), said, sure)


def _threshold(metric: str, place: str, x: Numbers, threshold: float | None) -> tuple[float, bool]:
    """Threshold of marks, and whether the values are a mask's and no picture's."""
    if threshold is not None:
        return threshold, False
    if _from_0_to_1(x):
        near = float((np.minimum(x, 1 - x) < EXTREME).mean())
        return 0.5, near > CERTAIN and bool((x > 0.5).any() and (x < 0.5).any())
    if x.min() < 0 < x.max():
        return 0.0, False
    raise LayoutError(
        f"{metric}: {place}values reach from {x.min():.3g} to {x.max():.3g}, neither probabilities "
        f"nor logits. Say from where on a place is marked: --metric {metric}:threshold=127."
    )


def _from_0_to_1(x: Numbers) -> bool:
    return bool(((x >= 0) & (x <= 1)).all())


def _adds_up(x: Numbers, axis: int) -> bool:
    """Whether classes are probabilities, or their logarithms, which exclude each other."""
    with np.errstate(over="ignore"):
        sums = (x if x.min() >= 0 else np.exp(x)).sum(axis)
    return bool((np.abs(sums - 1) < 1e-2).all())


def _class_axis(metric: str, place: str, x: Numbers) -> int:
    """Axis along which probabilities add up to 1; or the one beside a square, or a short one."""
    added = [axis for axis in dict.fromkeys((1, x.ndim - 1)) if _adds_up(x, axis)]
    first, middle, last = x.shape[1], x.shape[2:-1], x.shape[-1]
    if len(added) == 1 or x.ndim == 2:
        return (*added, 1)[0]
    if (middle == (first,)) != (middle == (last,)):
        return 3 if middle == (first,) else 1
    if max(first, last) >= 2 * min(first, last):
        return 1 if first < last else x.ndim - 1
    raise LayoutError(
        f"{metric}: {place}nothing tells its axis of classes. Say axis=1, or axis={x.ndim - 1} "
        f"where they stand last: --metric {metric}:axis=1."
    )
