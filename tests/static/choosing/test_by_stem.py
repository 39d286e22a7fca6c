from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import onnxq
from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.qconfig import default_qconfig_mapping
from onnxq.static.choosing.by_stem import by_stem
from onnxq.static.deciders import weighed
from onnxq.static.seen_samples import SeenSamples
from tests.examples import images, network
from tests.small_networks import patches
from tests.static.choosing.tables import measurements, table

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics
    from onnxq.times import Costs

STEM = ("cut", "flat", "turned")
INTEGER, RESULT, FLOAT = Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.FLOAT


def chosen(prepared: Prepared, statistics: Statistics, costs: Costs) -> Prepared:
    """The stems' choice for the shapes that the statistics tell."""
    sizes = sizes_of(prepared.model, statistics.samples.shapes)
    seen = measurements(prepared, statistics, (sizes, costs))
    return weighed(prepared, seen, (by_stem,))


def precisions(setting: str = "", integer_ns: float = 9e4) -> dict[str, Precision]:
    """Precisions of the patches where a float node takes 100 us, and conversions nearly nothing."""
    mapping = default_qconfig_mapping().with_overrides([setting] if setting else [])
    prepared = onnxq.prepare(patches(), mapping, "x86-vnni")
    statistics = onnxq.calibrate(prepared, {"x": images(8)}, threads=1)
    costs = table(prepared, 1e5, integer_ns, change_ns=1.0)
    found = chosen(prepared, statistics, costs)
    return {name: chosen.precision for name, chosen in found.precisions.items()}


def test_a_stem_that_saves_little_ahead_of_float_sums_stays_float() -> None:
    found = precisions()
    assert {found[name] for name in STEM} == {FLOAT}
    assert {found[name] for name in ("up", "down")} == {RESULT}


def test_what_is_named_stays_in_integers() -> None:
    assert precisions("node:cut=int8")["cut"] is INTEGER


def test_the_reason_has_the_error_and_both_times() -> None:
    prepared = onnxq.prepare(patches(), None, "x86-vnni")
    statistics = onnxq.calibrate(prepared, {"x": images(8)}, threads=1)
    found = chosen(prepared, statistics, table(prepared, 1e5, 9e4, change_ns=1.0))
    reason = found.precisions["cut"].reason.words
    assert "float sums would add to what integers round here" in reason
    assert "measured on x86-vnni" in reason


def test_integers_with_little_noise_stay_where_they_save_much() -> None:
    prepared = onnxq.prepare(patches(), None, "x86-vnni")
    few = (np.arange(192).reshape(1, 3, 8, 8) % 2).astype(np.float32)
    statistics = onnxq.calibrate(prepared, {"x": np.repeat(few, 8, axis=0)}, threads=1)
    costs = table(prepared, 1e5, 1.0, change_ns=1.0)
    assert chosen(prepared, statistics, costs).precisions["cut"].precision is INTEGER


def test_a_network_without_float_sums_stays_as_it_is() -> None:
    prepared = onnxq.prepare(network(), None, "x86-vnni")
    statistics = onnxq.calibrate(prepared, {"x": images(8)}, threads=1)
    costs = table(prepared, 1e5, 9e4, change_ns=1.0)
    assert chosen(prepared, statistics, costs) is prepared


def test_a_stem_whose_times_are_not_known_stays() -> None:
    prepared = onnxq.prepare(patches(), None, "x86-vnni")
    statistics = onnxq.calibrate(prepared, {"x": images(8)}, threads=1)
    costs = replace(table(prepared, 1e5, 9e4, change_ns=1.0), timings=())
    assert chosen(prepared, statistics, costs) is prepared


def test_statistics_without_shapes_are_named_in_a_note() -> None:
    prepared = onnxq.prepare(patches(), None, "x86-vnni")
    statistics = onnxq.calibrate(prepared, {"x": images(8)}, threads=1)
    old = replace(statistics, samples=SeenSamples(8))
    assert any("tell no shapes" in note for note in onnxq.plan(prepared, old).notes)
