from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import QConfigError
from onnxq.metrics import Boxes, LayoutError
from onnxq.metrics.detections import Detections, average_precision, iou, matched, suppressed

if TYPE_CHECKING:
    from collections.abc import Callable

Array = npt.NDArray[Any]
Outputs = dict[str, Array]
CLASSES, PLACES, OBJECTS, SIDE = 3, 400, 5, 320.0
RNG = np.random.default_rng(0)


def scene(samples: int = 4) -> tuple[Array, Array]:
    """Boxes (N, A, 4) with centre and size in pixels, scores (N, A, C): five objects a sample."""
    centres = RNG.uniform(20, SIDE - 20, (samples, PLACES, 2))
    boxes = np.concatenate([centres, RNG.uniform(4, 60, (samples, PLACES, 2))], -1)
    scores = RNG.uniform(0, 0.05, (samples, PLACES, CLASSES))
    for sample in range(samples):
        for i in range(OBJECTS):
            boxes[sample, i] = [30 + 60 * i, 40 + 50 * i, 50, 40]
            scores[sample, i, i % CLASSES] = 0.9 - 0.05 * i
    return boxes, scores


BOXES, SCORES = scene()


def corners(boxes: Array) -> Array:
    return np.concatenate(
        [boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1
    )


def logits(p: Array) -> Array:
    q = np.clip(p, 1e-3, 1 - 1e-3)
    return np.asarray(np.log(q / (1 - q)))


def with_objectness(scores: Array) -> Array:
    """Objectness, and classes of which one is high everywhere, as YOLOv5's are."""
    classes = np.asarray(scores / scores.max(-1, keepdims=True))
    return np.concatenate([scores.max(-1, keepdims=True), classes], -1)


def finished(boxes: Array, scores: Array) -> tuple[Array, Array, Array]:
    order = np.argsort(-scores.max(-1), axis=1)[:, :20]
    best = np.take_along_axis(scores, order[..., None], 1)
    return np.take_along_axis(corners(boxes), order[..., None], 1), best.max(-1), best.argmax(-1)


def end_to_end(boxes: Array, scores: Array) -> Outputs:
    at, best, labels = finished(boxes, scores)
    return {"output0": np.concatenate([at, best[..., None], labels[..., None]], -1)}


def with_batch(boxes: Array, scores: Array) -> Outputs:
    at, best, labels = finished(boxes, scores)
    batch = np.broadcast_to(np.arange(len(at))[:, None, None], (*labels.shape, 1))
    rows = np.concatenate([batch, at, labels[..., None], best[..., None]], -1)
    return {"output": rows.reshape(-1, 7)}


def apart(boxes: Array, scores: Array) -> Outputs:
    return dict(zip(("boxes", "scores", "labels"), finished(boxes, scores), strict=True))


def detr(boxes: Array, scores: Array) -> Outputs:
    nothing = 1 - scores.max(-1, keepdims=True)
    return {
        "logits": np.log(np.concatenate([scores, nothing], -1) + 1e-3),
        "pred_boxes": boxes / SIDE,
    }


def selected(boxes: Array, scores: Array) -> Outputs:
    kept = np.argwhere(np.moveaxis(scores, 1, 2) > 0.25)
    return {"boxes": corners(boxes), "scores": np.moveaxis(scores, 1, 2), "selected": kept}


LAYOUTS: dict[str, Callable[[Array, Array], Outputs]] = {
    "yolov8": lambda b, s: {"output0": np.moveaxis(np.concatenate([b, s], -1), 1, 2)},
    "yolov8 in corners": lambda b, s: {"y": np.moveaxis(np.concatenate([corners(b), s], -1), 1, 2)},
    "places first": lambda b, s: {"y": np.concatenate([b, s], -1)},
    "shares of the side": lambda b, s: {"y": np.concatenate([b / SIDE, s], -1)},
    "yolov5": lambda b, s: {"y": np.concatenate([b, with_objectness(s)], -1)},
    "with mask coefficients": lambda b, s: {
        "y": np.moveaxis(np.concatenate([b, s, np.sin(b)], -1), 1, 2),
        "protos": np.zeros((4, 4, 8, 8)),
    },
    "end to end": end_to_end,
    "rows with batch": with_batch,
    "apart": apart,
    "class scores apart": lambda b, s: {"boxes": b, "scores": np.moveaxis(s, 1, 2)},
    "sigmoid logits": lambda b, s: {"pred_boxes": b / SIDE, "logits": logits(s)},
    "detr": detr,
    "selected indices": selected,
    "indices alone": lambda b, s: {"selected": selected(b, s)["selected"]},
}


def singles(outputs: Outputs) -> Outputs:
    return {n: x.astype(np.float32) if x.dtype.kind == "f" else x for n, x in outputs.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_tells_the_same_objects(layout: str) -> None:
    """Two of 20 boxes lose their score, one finds another class: TP 17, FP 1, FN 3."""
    spoilt = SCORES.copy()
    spoilt[0, :2] = 0.01
    spoilt[1, 0] = [0.01, 0.9, 0.01]
    found = Boxes()
    found.update(singles(LAYOUTS[layout](BOXES, SCORES)), singles(LAYOUTS[layout](BOXES, spoilt)))
    assert found.count == 4 * OBJECTS
    assert found.f1 == pytest.approx(2 * 17 / (2 * 17 + 1 + 3))
    assert found.value < 1.0
    assert found.mean_ap < 1.0
    equal = Boxes(figure="map", **found.layout.said)
    equal.update(*[singles(LAYOUTS[layout](BOXES, SCORES))] * 2)
    assert (equal.f1, equal.value) == (1.0, 1.0)


def test_boxes_without_a_batch_are_of_one_sample() -> None:
    whole = singles(apart(BOXES, SCORES))
    found = Boxes()
    found.update(*[{name: x[0] for name, x in whole.items()}] * 2)
    assert found.count == OBJECTS


def test_raw_regression_is_refused_with_the_remedy() -> None:
    raw = RNG.normal(size=(1, PLACES, 4 + CLASSES))
    raw[..., 4:] = SCORES[:1]
    with pytest.raises(LayoutError, match=r"not decoded.*decoding"):
        _ = Boxes().layout_of({"y": raw})


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ({"y": RNG.uniform(0, 1, (1, 84, 84))}, "axis=1 or axis=2"),
        ({"y": RNG.normal(size=(1, 10))}, "known fits the outputs 'y'"),
        ({"boxes": BOXES, "logits": RNG.uniform(1, 3, (4, PLACES, 9))}, "scores=sigmoid"),
        (
            {"y": np.concatenate([BOXES, RNG.uniform(0, 0.4, (4, PLACES, 3))], -1)},
            "objectness=yes or objectness=no",
        ),
    ],
    ids=["square", "no detector", "logits", "objectness"],
)
def test_what_cannot_be_told_is_an_error_that_names_what_to_say(
    outputs: Outputs, says: str
) -> None:
    with pytest.raises(LayoutError, match=says):
        _ = Boxes().layout_of(outputs)


@pytest.mark.parametrize(("axis", "box_format"), [(1, None), (2, "xywh")])
def test_an_axis_without_scores_is_an_error_that_names_what_to_say(
    axis: int, box_format: str | None
) -> None:
    raw = np.concatenate([BOXES, logits(SCORES)], -1)
    x = np.moveaxis(raw, 2, axis) if axis == 1 else BOXES
    with pytest.raises(LayoutError, match=f"along axis {axis} is no score.*scores=sigmoid"):
        _ = Boxes(axis=axis, format=box_format).layout_of({"y": x})


def test_an_objectness_without_classes_is_the_score() -> None:
    x = {"y": np.concatenate([BOXES, SCORES.max(-1, keepdims=True)], -1)}
    found = Boxes(axis=2, objectness="yes")
    found.update(x, x)
    assert (found.count, found.f1) == (4 * OBJECTS, 1.0)


def test_a_batch_without_objects_waits_for_one_that_tells() -> None:
    empty = singles(LAYOUTS["yolov5"](BOXES, SCORES * 0.01))
    full = singles(LAYOUTS["yolov5"](BOXES, SCORES))
    found = Boxes()
    for x in (empty, full):
        found.update(x, x)
    assert found.layout.said["objectness"] == "yes"
    assert (found.count, found.f1) == (4 * OBJECTS, 1.0)


def test_another_value_of_an_option_is_refused() -> None:
    with pytest.raises(QConfigError, match=r"format is 'xywz'; wanted .*Did you mean 'xyw"):
        Boxes(format="xywz")


def test_iou_is_area_of_both_over_area_of_either() -> None:
    a, b = np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 3, 2], [5, 5, 6, 6], [0, 0, 2, 2]])
    assert iou(a, b).tolist() == [[pytest.approx(1 / 3), 0.0, 1.0]]


def of(boxes: list[list[float]], scores: list[float], labels: list[int]) -> Detections:
    return Detections(np.array(boxes), np.array(scores), np.array(labels))


def test_suppression_is_class_by_class() -> None:
    same = [
        [0.0, 0.0, 10.0, 10.0],
        [0.0, 0.0, 10.0, 9.0],
        [0.0, 0.0, 9.0, 10.0],
        [50.0, 50.0, 60.0, 60.0],
    ]
    kept = suppressed(of(same, [0.6, 0.9, 0.8, 0.1], [0, 0, 1, 0]), 0.45)
    assert kept.scores.tolist() == [0.9, 0.8, 0.1]
    many = of([[i * 20.0, 0, i * 20 + 10, 10] for i in range(1500)], [0.5] * 1500, [0] * 1500)
    assert len(suppressed(many, 0.45).scores) == 300


def test_a_box_matches_once() -> None:
    x = of([[0.0, 0, 10, 10]], [0.9], [0])
    y = of([[0.0, 0, 10, 9], [0, 0, 10, 10]], [0.8, 0.9], [0, 0])
    assert matched(x, y, np.array([0.5, 0.95])).tolist() == [[False, True], [False, True]]


def test_average_precision_is_coco_s() -> None:
    """Right, wrong, right of two: precision 1 up to recall 0.5, then 2/3."""
    right = np.array([True, False, True])
    expected = (51 * 1.0 + 50 * 2 / 3) / 101
    assert average_precision(np.array([0.9, 0.8, 0.7]), right, 2) == pytest.approx(expected)
    assert average_precision(np.array([0.9]), np.array([True]), 2) == pytest.approx(51 / 101)
