from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.metrics import Frames, LayoutError, Masks

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, (2, 16, 16))
OTHERS = np.where(RNG.uniform(size=LABELS.shape) < 0.2, (LABELS + 1) % 3, LABELS)


def one_hot(labels: Array) -> Array:
    """Logits (N, C, H, W)."""
    return np.moveaxis(4 * np.eye(3, dtype=np.float32)[labels] - 1, -1, 1)


def probabilities(labels: Array) -> Array:
    powers = np.exp(one_hot(labels))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def mean_iou() -> float:
    pairs = [(np.equal(LABELS, k), np.equal(OTHERS, k)) for k in range(3)]
    return float(np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs]))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x[:, None].astype(np.uint8),
        one_hot,
        probabilities,
        lambda x: np.log(probabilities(x)),
        lambda x: np.moveaxis(one_hot(x), 1, -1),
    ],
    ids=["labels", "uint8", "logits", "probabilities", "logarithms", "channels last"],
)
def test_every_layout_of_masks_gives_the_same_iou(layout: object) -> None:
    assert callable(layout)
    found = Masks()
    found.update({"out": layout(LABELS)}, {"out": layout(OTHERS)})
    assert found.value == pytest.approx(mean_iou())
    assert set(found.by_class) == {0, 1, 2}
    assert found.count == LABELS.size
    again = Masks(**found.layout.said)
    again.update({"out": layout(LABELS)}, {"out": layout(LABELS)})
    assert again.value == 1.0


def test_iou_of_masks_is_the_same_for_any_size_of_batches() -> None:
    x, y = np.stack([np.zeros((8, 8), int), np.ones((8, 8), int)]), np.ones((2, 8, 8), int)
    whole, parts = Masks(), Masks()
    whole.update({"out": x}, {"out": y})
    for i in range(2):
        parts.update({"out": x[i : i + 1]}, {"out": y[i : i + 1]})
    assert parts.by_class == whole.by_class == {0: 0.0, 1: 0.5}


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (6.0, -3.0)], ids=["share", "logits"])
def test_a_mask_of_one_channel_counts_what_is_marked(scale: float, shift: float) -> None:
    x, y = (
        ((labels == 1)[:, None] * scale + shift).astype(np.float32) for labels in (LABELS, OTHERS)
    )
    found = Masks()
    found.update({"mask": x}, {"mask": y})
    a, b = LABELS == 1, OTHERS == 1
    assert found.value == pytest.approx((a & b).sum() / (a | b).sum())


def test_masks_that_overlap_are_counted_each_for_itself() -> None:
    x = RNG.uniform(0, 1, (2, 5, 16, 16)).astype(np.float32)
    found = Masks()
    found.update({"mask": x}, {"mask": np.where(x > 0.9, 0, x)})
    assert len(found.by_class) == 5
    assert found.value == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (RNG.uniform(0, 255, (1, 1, 8, 8)), "masks:threshold="),
        (RNG.normal(size=(1, 8, 8, 8)), "Say axis=1, or axis=3"),
        (RNG.normal(size=(1, 8)), "masks:output=NAME"),
    ],
    ids=["picture", "cube", "vector"],
)
def test_masks_that_cannot_be_told_name_what_to_say(x: Array, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        _ = Masks().layout_of({"y": x.astype(np.float32)})


@pytest.mark.parametrize("axis", [1, 2])
def test_frames_with_the_same_class_agree(axis: int) -> None:
    x = np.moveaxis(np.eye(4, dtype=np.float32)[RNG.integers(0, 4, (2, 50))], 2, axis)
    y = x.copy()
    np.moveaxis(y, axis, 2)[0, :10] = [0.2, 0.2, 0.2, 2.0]
    found = Frames()
    found.update({"out": 5 * x - 2}, {"out": 5 * y - 2})
    same = (np.moveaxis(x, axis, 2).argmax(2) == np.moveaxis(y, axis, 2).argmax(2)).mean()
    assert found.value == pytest.approx(same)


def test_marks_of_frames_are_asked_at_their_threshold() -> None:
    x = RNG.uniform(0, 1, (1, 100, 1)).astype(np.float32)
    found = Frames()
    found.update({"speech": x}, {"speech": np.where(x > 0.9, 0, x)})
    assert found.value == pytest.approx(1 - (x > 0.9).mean())


def test_an_axis_of_frames_that_cannot_be_told_is_asked_for() -> None:
    with pytest.raises(LayoutError, match="frames:axis=1"):
        _ = Frames().layout_of({"y": RNG.normal(size=(1, 30, 40))})


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(LayoutError, match="there is no axis 3"):
        _ = Masks(output="y", axis=3).layout_of({"y": RNG.uniform(size=(1, 8, 8))})
    with pytest.raises(LayoutError, match="there is no axis 2"):
        _ = Frames(axis=2).layout_of({"y": RNG.uniform(size=(3, 8))})
