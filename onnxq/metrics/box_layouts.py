"""Layouts of detectors' outputs, derived from shapes and values of the float model.

    [N, 4+C, A], [N, A, 4+C], [N, A, 5+C]    a box and scores for each of A places: YOLO
    [N, A, 6], [n, 6], [n, 7], [1, 1, n, 7]  a box, a score, a class: already suppressed
    boxes, scores and labels apart           torchvision, SSD, TensorFlow: already suppressed
    boxes and scores [N, A, C], [N, C, A]    probabilities or logits: SSD, YOLO-NAS, DETR
    boxes, scores, indices [n, 3]            ONNX NonMaxSuppression; indices alone are compared

Columns behind a box are scores as long as they lie from 0 to 1; later ones (masks, points, angles)
are left out. `xyxy` has x2 >= x1, y2 >= y1 nearly everywhere, `xywh` at some places only; which of
x and y stands first makes no difference for IoU.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from onnxq.metrics.detections import Detections, suppressed
from onnxq.metrics.float_agreement import Layout, LayoutError, Numbers, Outputs, shapes_of

Arrays = dict[str, Numbers]
Found = list[Detections]

ORDERED, MIXED = 0.99, 0.9
"""Share of boxes whose corners stand in order: from the first on it is xyxy, up to the second xywh;
regression leaves a few corners crossed, and some widths beyond the centre."""
PIXELS = 2.0
"""Boxes beyond it are in pixels: no probability, and no share of an image's side."""
SCORED = 0.25
"""Score that an object has: what tells an objectness from a class."""
NO_SCORE = -1.0
"""Best logit of most places where each class has a sigmoid: there is nothing at most places."""
ROWS = {
    (3, 6): ("xyxy score label",),  # YOLOv10 and later
    (2, 6): ("label score xyxy", "xyxy score label"),  # PaddleDetection
    (2, 7): ("batch xyxy label score", "batch label score xyxy"),  # YOLOv7, DetectionOutput
}
"""(rank, columns) -> orders of the columns of finished detections."""


@dataclass(frozen=True, slots=True)
class BoxOptions:
    """Parts of a layout; None: to be derived. See `Boxes`."""

    format: str | None = None
    objectness: str | None = None
    scores: str | None = None
    axis: int | None = None


def box_layout(outputs: Outputs, options: BoxOptions, suppress: float) -> Layout[Found]:
    """The first layout that fits outputs of the float model; `suppress` as of `Boxes`."""
    arrays = {name: _plain(np.asarray(x)) for name, x in outputs.items()}
    found = _selected(arrays) or _finished(arrays) or _rows(arrays)
    if found is None:
        found = _apart(arrays, options, suppress) or _single(arrays, options, suppress)
    inner = found.read
    return replace(found, read=lambda of: inner({n: _plain(np.asarray(of[n])) for n in arrays}))


def _plain(x: Numbers) -> Numbers:
    """Without axes of 1 that exporters leave: (1, 1, n, 7), (N, A, 1, 4), (1, n, 3) of indices."""
    if x.ndim == 4 and x.shape[:2] == (1, 1):
        x = x[0, 0]
    if x.ndim == 4 and x.shape[2] == 1:
        x = x[:, :, 0]
    if x.ndim == 3 and x.shape[0] == 1 and x.shape[2] == 3 and _whole(x):
        x = x[0]
    return x


def _whole(x: Numbers) -> bool:
    """Whether all numbers are integers."""
    return x.dtype.kind in "iu" or (x.dtype.kind == "f" and bool((x == np.rint(x)).all()))


def _from_0_to_1(x: Numbers) -> bool:
    """Whether all numbers lie from 0 to 1."""
    return x.dtype.kind == "f" and bool(((x >= 0) & (x <= 1)).all())


def _ordered(boxes: Numbers) -> float:
    """Share of boxes with corners in order; rows of zeros, which fill up, are not asked."""
    real = boxes.reshape(-1, 4)
    real = real[(real != 0).any(1)]
    return float((real[:, 2:] >= real[:, :2]).all(1).mean()) if len(real) else 1.0


def _detections(boxes: Numbers, scores: Numbers, labels: Numbers) -> Detections:
    return Detections(boxes.astype(np.float64), scores.astype(np.float64), labels.astype(np.int64))


# --- Finished detections


def _selected(arrays: Arrays) -> Layout[Found] | None:
    """Indices (batch, class, place) of ONNX NonMaxSuppression, with what they point to if given."""
    pairs = [(n, x.shape[1]) for n, x in arrays.items() if x.ndim == 2 and x.dtype.kind == "i"]
    indices = next((name for name, width in pairs if width == 3), None)
    if indices is None:
        return None
    threes = {n: x.shape for n, x in arrays.items() if x.ndim == 3}
    boxes = next((n for n, shape in threes.items() if shape[2] == 4), "")
    places = threes[boxes][:2] if boxes else ()
    scores = next((n for n, s in threes.items() if n != boxes and (s[0], s[2]) == places), "")

    def read(of: Outputs) -> Found:
        batch, label, place = of[indices].astype(np.int64).T
        if scores:
            every = _detections(of[boxes][batch, place], of[scores][batch, label, place], label)
            return [every[batch == i] for i in range(len(of[boxes]))]
        low = np.stack([place, np.zeros_like(place)], 1)  # a box of its own for each place
        every = _detections(
            np.concatenate([low, low + 1], 1), np.ones(len(place)), label + batch * 2**32
        )
        return [every]

    what = f"of boxes '{boxes}' and scores '{scores}'" if scores else "alone: equal ones match"
    return Layout(f"selected indices '{indices}' {what}", read, is_sure=bool(scores))


def _finished(arrays: Arrays) -> Layout[Found] | None:
    """Boxes (N, A, 4) or (A, 4), scores and labels of their leading shape."""
    for name, boxes in arrays.items():
        if boxes.ndim not in (2, 3) or boxes.shape[-1] != 4 or _ordered(boxes) < ORDERED:
            continue
        beside = {n: x for n, x in arrays.items() if n != name and x.shape == boxes.shape[:-1]}
        whole = sorted(
            (n for n, x in beside.items() if _whole(x)), key=lambda n: beside[n].dtype.kind != "i"
        )
        scores = next((n for n, x in beside.items() if n not in whole[:1] and _from_0_to_1(x)), "")
        if whole and scores:
            names = (name, scores, whole[0])
            words = f"boxes '{name}' (xyxy), scores '{scores}', labels '{whole[0]}'"
            sure = beside[whole[0]].dtype.kind == "i"
            return Layout(words, partial(_beside, names=names), is_sure=sure)
    return None


def _beside(of: Outputs, names: tuple[str, ...]) -> Found:
    parts = [of[name] if of[names[0]].ndim == 3 else of[name][None] for name in names]
    return [_detections(*each) for each in zip(*parts, strict=True)]


def _rows(arrays: Arrays) -> Layout[Found] | None:
    """Rows with a box, a score and a class each."""
    for name, x in arrays.items():
        for order in ROWS.get((x.ndim, x.shape[-1] if x.ndim else 0), ()):
            part = _columns(x, order)
            fits = _whole(part["label"]) and _whole(part["batch"]) and _from_0_to_1(part["score"])
            if fits and _ordered(part["xyxy"]) >= ORDERED:
                sure = bool(np.abs(part["xyxy"]).max(initial=0) > PIXELS)
                read = partial(_of_rows, name=name, order=order)
                return Layout(f"'{name}' {x.shape}: rows of {order}", read, is_sure=sure)
    return None


def _columns(x: Numbers, order: str) -> Arrays:
    """Columns by their names."""
    found: Arrays = {"batch": np.zeros(x.shape[:-1], np.int64)}
    at = 0
    for word in order.split():
        width = 4 if word == "xyxy" else 1
        found[word] = x[..., at : at + 4] if width == 4 else x[..., at]
        at += width
    return found


def _of_rows(of: Outputs, name: str, order: str) -> Found:
    found = []
    for rows in of[name] if of[name].ndim == 3 else of[name][None]:
        part = _columns(rows, order)
        every = _detections(part["xyxy"], part["score"], part["label"])
        batches = range(int(part["batch"].max(initial=0)) + 1)
        found += [every[part["batch"] == i] for i in batches]
    return found


# --- Boxes and scores of every place


def _best(boxes: Numbers, scores: Numbers, box_format: str, suppress: float) -> Found:
    """Each place with its best class, suppressed."""
    if box_format == "xywh":
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = np.concatenate([centre - half, centre + half], -1)
    every = zip(boxes, scores.max(-1), scores.argmax(-1), strict=True)
    return [suppressed(_detections(*each), suppress) for each in every]


def _format_of(boxes: Numbers, name: str) -> str:
    """Whether boxes are corners, or centres and sizes."""
    share = _ordered(boxes)
    if share >= ORDERED:
        return "xyxy"
    if (boxes[..., 2:] < 0).mean() > 1 - ORDERED:
        raise LayoutError(
            f"boxes: '{name}' has sizes below 0, and no corners in order: it is not decoded, and "
            "no IoU is known. Export the model with its decoding, or give FILE.py:function."
        )
    if share <= MIXED:
        return "xywh"
    raise LayoutError(
        f"boxes: corners of '{name}' are in order at {share:.0%} of the places, and may be centres "
        "and sizes. Say format=xywh or format=xyxy: --metric boxes:format=xywh."
    )


def _apart(arrays: Arrays, options: BoxOptions, suppress: float) -> Layout[Found] | None:
    """Boxes (N, A, 4) beside class scores (N, A, C) or (N, C, A)."""
    threes = {n: x for n, x in arrays.items() if x.ndim == 3 and x.dtype.kind == "f"}
    named = sorted(threes, key=lambda name: "box" not in name.lower())
    pairs = [(b, s) for b in named for s in named if b != s and threes[b].shape[2] == 4]
    fit = [(b, s) for b, s in pairs if threes[b].shape[1] in threes[s].shape[1:]]
    if not fit:
        return None
    name, other = fit[0]
    axis = 2 if threes[other].shape[1] == threes[name].shape[1] else 1
    raw = np.moveaxis(threes[other], axis, 2)
    box_format = options.format or _format_of(threes[name], name)
    kind = options.scores or _kind_of(raw, other)
    nothing = _no_object(raw) if kind == "softmax" else None

    def read(of: Outputs) -> Found:
        scores = _probabilities(np.moveaxis(of[other], axis, 2), kind)
        if nothing is not None:
            scores[..., nothing] = 0
        return _best(of[name], scores, box_format, suppress)

    without = "" if nothing is None else f", class {nothing} is no object"
    words = f"boxes '{name}' ({box_format}), scores '{other}' {raw.shape} ({kind}{without})"
    return Layout(words, read, asdict(replace(options, format=box_format, scores=kind)))


def _kind_of(raw: Numbers, name: str) -> str:
    """Whether class scores (..., C) are probabilities, or logits of sigmoids or of a softmax."""
    sums = raw.shape[-1] > 1 and bool((np.abs(raw.sum(-1) - 1) < 1e-2).all())
    if _from_0_to_1(raw):
        return "softmax" if sums and _no_object(raw) is not None else "probabilities"
    if raw.shape[-1] == 1 or np.median(raw.max(-1)) < NO_SCORE:
        return "sigmoid"
    if _no_object(raw) is not None:
        return "softmax"
    raise LayoutError(
        f"boxes: scores '{name}' reach from {raw.min():.3g} to {raw.max():.3g}, and no class is "
        "the best of most places. Say scores=probabilities, scores=sigmoid or scores=softmax: "
        "--metric boxes:scores=sigmoid."
    )


def _no_object(raw: Numbers) -> int | None:
    """The first or last class, where it is the best of most places."""
    ends = (raw.shape[-1] - 1, 0) if raw.shape[-1] > 1 else ()
    return next((c for c in ends if (raw.argmax(-1) == c).mean() > 0.5), None)


def _probabilities(x: Numbers, kind: str) -> npt.NDArray[np.float64]:
    reals = x.astype(np.float64)
    if kind == "sigmoid":
        return np.asarray(0.5 + 0.5 * np.tanh(reals / 2))
    if kind != "softmax" or _from_0_to_1(x):
        return reals
    powers = np.exp(reals - reals.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _single(arrays: Arrays, options: BoxOptions, suppress: float) -> Layout[Found]:
    """Boxes and scores of each place in one tensor, the first of three axes."""
    name = next((n for n, x in arrays.items() if x.ndim == 3 and x.dtype.kind == "f"), None)
    if name is None:
        raise LayoutError(
            f"boxes: no layout of a detector that is known fits the outputs {shapes_of(arrays)}. "
            "Wanted boxes (N, A, 4) with scores, or both in one tensor (N, 4 + classes, A). Give "
            "FILE.py:function."
        )
    x = arrays[name]
    kind, axis = options.scores or "probabilities", options.axis or _axis_of(name, x, options)
    columns = np.moveaxis(x, axis, 2)
    box_format = options.format or _format_of(columns[..., :4], name)
    inside = [
        kind != "probabilities" or _from_0_to_1(columns[..., c]) for c in range(4, x.shape[axis])
    ]
    stop = 4 + [*inside, False].index(False)
    if stop == 4:
        raise LayoutError(
            f"boxes: '{name}' {x.shape}: what stands behind a box along axis {axis} "
            "is no score from 0 to 1. Say scores=sigmoid where scores are logits, or another axis: "
            "--metric boxes:scores=sigmoid."
        )
    objectness = options.objectness or _objectness_of(columns[..., 4:stop], name, axis)

    def read(of: Outputs) -> Found:
        rows = np.moveaxis(of[name], axis, 2)
        scores = _probabilities(rows[..., 4:stop], kind)
        if objectness == "yes" and scores.shape[-1] > 1:  # alone it is the score of the only class
            scores = scores[..., 1:] * scores[..., :1]
        return _best(rows[..., :4], scores, box_format, suppress)

    said = {"axis": axis, "format": box_format, "objectness": objectness, "scores": kind}
    words = ", ".join(f"{option} {value}" for option, value in said.items())
    in_pixels = float(np.abs(columns[..., :4]).max()) > PIXELS
    return Layout(
        f"'{name}' {x.shape}: {words}, columns 4 to {stop - 1}",
        read,
        said,
        is_sure=in_pixels and stop == x.shape[axis],
    )


def _axis_of(name: str, x: Numbers, options: BoxOptions) -> int:
    """The axis along which a box and its scores stand: where one does, or else the shorter one."""
    found = []
    for axis in (1, 2):
        score = np.moveaxis(x, axis, 2)[..., 4:5]
        if score.size and (options.scores not in (None, "probabilities") or _from_0_to_1(score)):
            found.append(axis)
    if len(found) == 2:
        found = [a for a in found if 2 * x.shape[a] <= x.shape[3 - a]]
    if len(found) == 1:
        return found[0]
    raise LayoutError(
        f"boxes: '{name}' {x.shape} does not tell along which axis a box and its scores stand: "
        "behind 4 numbers of a box, scores reach from 0 to 1. Say axis=1 or axis=2, --metric "
        "boxes:axis=1, and scores=sigmoid where they are logits."
    )


def _objectness_of(scores: Numbers, name: str, axis: int) -> str:
    """Whether the first of the scores (N, A, C) is an objectness.

    Where it is high, some class is: an object has one. Where a class is high, no other is.
    """
    if axis == 1 or scores.shape[2] == 1:
        return "no"  # no exporter writes an objectness so
    high = scores[..., 0] > SCORED
    share = float((scores[..., 1:].max(-1)[high] > SCORED).mean()) if high.any() else 0.5
    if 0.2 < share < 0.8:
        raise LayoutError(
            f"boxes: '{name}' does not tell whether column 4 is an objectness or a class. Say "
            "objectness=yes or objectness=no: --metric boxes:objectness=yes."
        )
    return "yes" if share >= 0.8 else "no"
