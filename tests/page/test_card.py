from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq import samples
from onnxq.observers import MinMaxObserver
from onnxq.page.card import MOST_ROWS, Table, card, card_of, counts
from onnxq.page.content import NamedText
from onnxq.report.inspection import inspect
from onnxq.times import costs_of
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.weight_plan import WeightRequest
from tests.page.example_page import HOSTILE
from tests.survey.pair import BATCH, pair

if TYPE_CHECKING:
    from collections.abc import Callable


def test_texts_are_escaped() -> None:
    text = card(
        HOSTILE, [HOSTILE], [NamedText(HOSTILE, HOSTILE)], [Table((HOSTILE,), ((HOSTILE,),))]
    )
    assert "<img" not in text
    assert "<script" not in text
    assert text.count("&lt;img") == 6


def test_rows_beyond_the_first_are_counted() -> None:
    rows = tuple((str(n),) for n in range(MOST_ROWS + 3))
    text = card("T", tables=[Table(("n",), rows)])
    assert "and 3 more" in text
    assert "<td" in text
    assert f">{MOST_ROWS}<" not in text


def test_a_dataclass_shows_its_fields_as_its_repr_does() -> None:
    text = card_of(pair().plan, counts("precision", {"int8": 3}))
    assert "Plan" in text
    assert "portable" in text
    assert ">int8<" in text


@functools.cache
def quantized() -> onnxq.QuantizedModel:
    return onnxq.quantize(pair().source, [BATCH])


VALUES: dict[str, Callable[[], object]] = {
    "prepared": lambda: onnxq.prepare(pair().source),
    "plan": lambda: pair().plan,
    "findings": lambda: onnxq.verify(pair().source, pair().target, [BATCH]),
    "model": quantized,
    "verdict": lambda: quantized().verdict,
    "prediction": lambda: onnxq.predict(pair().target),
    "benchmark": lambda: onnxq.bench(pair().source, pair().target, [BATCH], runs=2),
    "inspection": lambda: inspect(pair().source),
    "file": lambda: inspect(pair().target),
    "qconfig": onnxq.qconfig.default_qconfig_mapping,
    "target": onnxq.targets.get_default,
    "weight plan": lambda: plan_weights(pair().source, WeightRequest()),
    "goal": lambda: onnxq.Goal(min_sqnr_db=30),
    "entry": onnxq.qconfig.get_default_qconfig,
    "dynamic entry": lambda: onnxq.qconfig.QConfigDynamic(weight=MinMaxObserver.with_args()),
    "spec": lambda: MinMaxObserver.with_args(),
    "costs": lambda: costs_of("x86-vnni"),
    "images": lambda: samples.Images("folder"),
    "pixels": onnxq.qconfig.Pixels,
    "bits": lambda: onnxq.metrics.Bits(8.0, 4),
}


@pytest.mark.parametrize("name", VALUES)
def test_public_values_are_short_in_notebooks_and_in_consoles(name: str) -> None:
    value = VALUES[name]()
    text = value._repr_html_()  # type: ignore[attr-defined]
    assert text.startswith('<div class="onnxq-card"')
    assert len(text) < 12_000
    assert name == "verdict" or len(repr(value)) < 600
