from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.errors import QConfigError
from onnxq.metrics import Boxes, Frames, LayoutError, Masks, Words

if TYPE_CHECKING:
    from onnxq.metrics import FloatAgreement

FIGURES = [
    *((Boxes, figure) for figure in ("count", "f1", "mean_ap", "value")),
    *((Masks, figure) for figure in ("count", "by_class", "value")),
    *((kind, figure) for kind in (Frames, Words) for figure in ("count", "value")),
]


@pytest.mark.parametrize(("kind", "figure"), FIGURES)
def test_no_figure_is_given_of_batches_that_nothing_tells_how_to_read(
    kind: type[FloatAgreement[Any]], figure: str
) -> None:
    metric = kind()
    unread = {"output": np.zeros((1, 3, 5, 7, 2), np.float32)}
    metric.update(unread, unread)
    with pytest.raises(LayoutError, match=r"the model gives|known fits the outputs"):
        getattr(metric, figure)


@pytest.mark.parametrize("kind", [Boxes, Frames, Masks, Words])
def test_without_a_batch_there_is_nothing_to_count(kind: type[FloatAgreement[Any]]) -> None:
    assert kind().count == 0
    assert kind().value == kind.BEST


@pytest.mark.parametrize("kind", [Boxes, Frames, Masks, Words])
def test_outputs_of_other_names_are_refused(kind: type[FloatAgreement[Any]]) -> None:
    x = np.zeros((1, 6, 8), np.float32)
    with pytest.raises(QConfigError, match="gives a; the other one b"):
        kind().update({"a": x}, {"b": x})


@pytest.mark.parametrize("option", ["min_score", "iou", "suppress"])
def test_shares_are_from_0_to_1(option: str) -> None:
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(QConfigError, match=f"{option} is .*from 0 to 1"):
            Boxes(**{option: value})  # type: ignore[arg-type]  # shares alone
