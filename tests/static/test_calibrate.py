from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.graph.io import model_hash
from onnxq.observers import (
    FloatHistogramObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NormalizationObserver,
    ObserverSpec,
    RecordingObserver,
)
from onnxq.samples import Samples
from onnxq.static.calibrate import Calibration, Checkpoint, Shard, Statistics, calibrate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onnxq.core.arrays import Array

MINMAX = MinMaxObserver.with_args()
RECORD = RecordingObserver.with_args()


@dataclass(frozen=True)
class Prepared:
    """The part of the real Prepared that calibrate reads."""

    model: ir.Model
    observed: Mapping[str, ObserverSpec]
    feedback: Mapping[str, str] = field(default_factory=dict)
    probed: Mapping[str, ObserverSpec] = field(default_factory=dict)

    @property
    def model_hash(self) -> str:
        return model_hash(self.model)


def _prepared(text: str, spec: ObserverSpec, *tensors: str, **feedback: str) -> Prepared:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f"{head} {text}"))
    return Prepared(model, dict.fromkeys(tensors, spec), feedback)


NET = "g (float[n,k] x) => (float[n,k] y) <float[1] w = {2}> { a = Mul(x, w) y = Relu(a) }"


def _batches(count: int) -> list[dict[str, Array]]:
    """Batches of different sizes in both dimensions."""
    rng = np.random.default_rng(0)
    return [
        {"x": rng.standard_normal((1 + i % 3, 2 + i % 2), np.float32) * (1 + i)}
        for i in range(count)
    ]


def _range(statistics: Statistics, tensor: str) -> tuple[float, float]:
    observer = statistics.observers[tensor]
    assert isinstance(observer, MinMaxObserver)
    return float(observer.min_val), float(observer.max_val)


def _recorded(statistics: Statistics, tensor: str) -> list[Array]:
    observer = statistics.observers[tensor]
    assert isinstance(observer, RecordingObserver)
    return list(observer.get_tensor_value())


def _same(a: Statistics, b: Statistics) -> None:
    assert dict(a.batches) == dict(b.batches)
    for name, observer in a.observers.items():
        theirs = b.observers[name].state()
        for key, array in observer.state().items():
            np.testing.assert_array_equal(array, theirs[key], strict=True)


def test_inputs_inner_tensors_and_outputs_are_observed() -> None:
    batches = _batches(5)
    statistics = calibrate(_prepared(NET, MINMAX, "x", "a", "y"), batches)
    x = np.concatenate([b["x"].ravel() for b in batches])
    assert _range(statistics, "x") == (x.min(), x.max())
    assert _range(statistics, "a") == (2 * x.min(), 2 * x.max())
    assert _range(statistics, "y") == (0, 2 * x.max())
    assert list(statistics.batches) == [0, 1, 2, 3, 4]


def test_the_model_is_named_by_its_hash_and_stays_as_it_is() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    before = prepared.model_hash
    assert calibrate(prepared, _batches(1)).model_hash == before
    assert [value.name for value in prepared.model.graph.outputs] == ["y"]


def test_each_batch_is_numbered() -> None:
    spec = MovingAverageMinMaxObserver.with_args(averaging_constant=0.5)
    statistics = calibrate(_prepared(NET, spec, "x"), _batches(4))
    observer = spec()
    for index, batch in enumerate(_batches(4)):
        observer.observe(batch["x"], index)
    assert statistics.observers["x"].calculate_qparams() == observer.calculate_qparams()


def test_nothing_observed_is_fine() -> None:
    assert list(calibrate(_prepared(NET, MINMAX), _batches(2)).batches) == [0, 1]


def test_progress_counts_batches() -> None:
    seen: list[tuple[int, int | None]] = []
    calibrate(_prepared(NET, MINMAX, "a"), _batches(3), progress=lambda *x: seen.append(x))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_merge_to_the_whole_in_any_order(count: int) -> None:
    spec = HistogramObserver.with_args(bins=128)
    prepared = _prepared(NET, spec, "x", "a", "y")
    shards = [calibrate(prepared, _batches(5), shard=Shard(i, count)) for i in range(count)]
    merged = shards[-1]
    for shard in shards[-2::-1]:
        merged = merged.merge(shard)
    _same(merged, calibrate(prepared, _batches(5)))


def test_a_shard_outside_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="shard 3 of 3"):
        Shard(3, 3)
    with pytest.raises(CalibrationError, match="at most 65536 shards"):
        Shard(0, 1 << 40)


def test_more_samples_come_on_top_of_earlier_ones() -> None:
    prepared = _prepared(NET, MovingAverageMinMaxObserver.with_args(), "a")
    first = calibrate(prepared, _batches(5)[:2])
    both = calibrate(prepared, _batches(5)[2:], statistics=first)
    _same(both, calibrate(prepared, _batches(5)))
    assert list(first.batches) == [0, 1]


def test_an_interrupted_run_resumes_where_it_stopped() -> None:
    prepared = _prepared(NET, HistogramObserver.with_args(bins=128), "a")
    partial = calibrate(prepared, _batches(2))
    resumed = calibrate(prepared, _batches(5), statistics=partial, first_batch=0)
    _same(resumed, calibrate(prepared, _batches(5)))


def test_resuming_with_other_samples_is_an_error() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    partial = calibrate(prepared, _batches(2))
    with pytest.raises(CalibrationError, match="batch 0 of the samples is not the batch 0"):
        calibrate(prepared, _batches(4)[::-1], statistics=partial, first_batch=0)


def test_statistics_of_another_model_or_qconfig_are_refused() -> None:
    statistics = calibrate(_prepared(NET, MINMAX, "a"), _batches(1))
    other = _prepared(NET.replace("{2}", "{3}"), MINMAX, "a")
    with pytest.raises(CalibrationError, match="of another model"):
        calibrate(other, _batches(1), statistics=statistics)
    with pytest.raises(CalibrationError, match="'a' was observed by MinMaxObserver"):
        calibrate(_prepared(NET, RECORD, "a"), _batches(1), statistics=statistics)


NOT_FINITE = "g (float[n] x) => (float[n] y, float[n] z) { a = Log(x) y = Neg(a) z = Abs(x) }"
ZERO_FIRST = [{"x": np.full(2, value, np.float32)} for value in (0, 1, 2, 0)]


def test_nan_and_inf_in_an_activation_are_told_with_their_batch() -> None:
    prepared = _prepared(NOT_FINITE, MINMAX, "x", "a", "z")
    statistics = calibrate(prepared, ZERO_FIRST[1:])
    assert list(statistics.not_finite) == ["a"]
    assert str(statistics.not_finite["a"]) == (
        "2 of 2 values are NaN or infinite, as -inf, in batch 2 of the samples"
    )
    assert (_range(statistics, "z"), _range(statistics, "a")) == ((0, 2), (np.inf, -np.inf))
    assert dict(statistics.counts) == {"x": 3, "a": 3, "z": 3}


def test_what_is_not_finite_is_the_same_however_the_batches_are_split() -> None:
    prepared = _prepared(NOT_FINITE, MINMAX, "x", "a", "z")
    whole = calibrate(prepared, ZERO_FIRST)
    parts = [calibrate(prepared, ZERO_FIRST, shard=Shard(i, 3)) for i in range(3)]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        first, *others = (parts[i] for i in order)
        for other in others:
            first = first.merge(other)
        _same(first, whole)
        assert first.not_finite == whole.not_finite
    resumed = calibrate(prepared, ZERO_FIRST, statistics=parts[1], first_batch=0)
    assert resumed.not_finite.keys() == {"a"}


def test_nan_and_inf_in_an_input_are_errors() -> None:
    with Calibration(_prepared(NET, MINMAX, "x")) as run:
        with pytest.raises(CalibrationError, match=r"tensor 'x': batch 0: 1 of 2 values are NaN"):
            run.observe({"x": np.array([[1, np.inf]], np.float32)})
        with pytest.raises(CalibrationError, match="stopped half-way"):
            run.statistics()


def test_bad_samples_are_errors_before_the_model_runs() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    with pytest.raises(CalibrationError, match="no input 'xx'"):
        calibrate(prepared, {"xx": np.zeros((1, 2), np.float32), "z": np.zeros((1, 2), np.float32)})
    with pytest.raises(CalibrationError, match="holds nan"):
        calibrate(prepared, {"x": np.full((1, 2), np.nan, np.float32)})
    with pytest.raises(CalibrationError, match="no samples"):
        calibrate(prepared, [])


IF = """
g (float[n,2] x, bool c, bool d) => (float[n,2] y) {
  y = If (c) <
    then_branch = t () => (float[n,2] t2) {
      t1 = Neg(x)
      t2 = If (d) <
        then_branch = tt () => (float[n,2] p) { p = Abs(t1) },
        else_branch = te () => (float[n,2] q) { q = Exp(t1) }
      >
    },
    else_branch = e () => (float[n,2] r) { r = Sqrt(x) }
  >
}
"""


def test_tensors_in_branches_are_observed_when_their_branch_runs() -> None:
    prepared = _prepared(IF, RECORD, "t1", "p", "q", "r", "y")
    x = np.array([[1, 4]], np.float32)
    flags = [(True, True), (True, False), (False, True)]
    batches = [{"x": x, "c": np.array(c), "d": np.array(d)} for c, d in flags]
    statistics = calibrate(prepared, batches)
    for tensor, expected in {"t1": [-x, -x], "p": [x], "q": [np.exp(-x)], "r": [x**0.5]}.items():
        got = _recorded(statistics, tensor)
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            # Exp of ONNX Runtime and NumPy differ by an ulp or two; the others are exact
            assert np.abs(ours.astype(np.float32) - theirs).max() <= 2**-22
    assert len(_recorded(statistics, "y")) == 3


RUNNING = """
g (float[n,2] x, float[n,2] state) => (float[n,2] y, float[n,2] total)
{ total = Add(x, state) y = Neg(total) }
"""


def _running(count: int) -> list[dict[str, Array]]:
    return [{"x": np.full((3, 2), 1 + i, np.float32)} for i in range(count)]


def _firsts(statistics: Statistics, tensor: str) -> list[float]:
    return [float(np.ravel(x)[0]) for x in _recorded(statistics, tensor)]


def test_state_begins_with_zeros_and_is_fed_back() -> None:
    prepared = _prepared(RUNNING, RECORD, "state", "y", total="state")
    statistics = calibrate(prepared, _running(4))
    assert _firsts(statistics, "state") == [0, 1, 3, 6]
    assert _firsts(statistics, "y") == [-1, -3, -6, -10]
    assert _recorded(statistics, "state")[0].shape == (3, 2)


def test_a_sample_with_the_state_begins_a_new_sequence() -> None:
    prepared = _prepared(RUNNING, RECORD, "state", total="state")
    batches = _running(4)
    batches[2]["state"] = np.full((3, 2), 100, np.float32)
    assert _firsts(calibrate(prepared, batches), "state") == [0, 1, 100, 103]


def test_a_state_of_another_batch_size_is_an_error() -> None:
    prepared = _prepared(RUNNING, RECORD, "state", total="state")
    batches = [*_running(1), {"x": np.zeros((1, 2), np.float32)}]
    with pytest.raises(CalibrationError, match=r"'state' is fed back with shape \(3, 2\)"):
        calibrate(prepared, batches)


def test_shards_and_resumed_runs_carry_the_state_through_batches_they_do_not_observe() -> None:
    prepared = _prepared(RUNNING, MovingAverageMinMaxObserver.with_args(), "y", total="state")
    whole = calibrate(prepared, _running(6))
    a, b = (calibrate(prepared, _running(6), shard=Shard(i, 2)) for i in range(2))
    _same(b.merge(a), whole)
    partial = calibrate(prepared, _running(3))
    _same(calibrate(prepared, _running(6), statistics=partial, first_batch=0), whole)


def test_static_and_free_dimensions_of_a_state_are_filled() -> None:
    text = """
    g (float[b,2] x, float[1,b,past] cache) => (float[1,b,past] next)
    { s = ReduceSum(x) next = Add(cache, s) }
    """
    prepared = _prepared(text, RECORD, "cache", next="cache")
    statistics = calibrate(prepared, [{"x": np.ones((4, 2), np.float32)}])
    assert _recorded(statistics, "cache")[0].shape == (1, 4, 1)


def test_the_loop_form_gives_the_same() -> None:
    prepared = _prepared(NET, HistogramObserver.with_args(bins=128), "a", "y")
    with Calibration(prepared) as run:
        for batch in _batches(4):
            run.observe(batch)
        early = run.statistics()
        run.observe(_batches(5)[4])
        _same(run.statistics(), calibrate(prepared, _batches(5)))
    _same(early, calibrate(prepared, _batches(4)))


def test_a_batch_number_is_used_once() -> None:
    with Calibration(_prepared(NET, MINMAX, "a")) as run:
        run.observe(_batches(1)[0], 7)
        with pytest.raises(CalibrationError, match="batch 7 was observed already"):
            run.observe(_batches(1)[0], 7)
        assert run.next_batch == 8


def test_one_batch_of_activations_is_alive_at_a_time() -> None:
    alive: list[int] = []

    def samples() -> Iterator[dict[str, Array]]:
        for index in range(4):
            x = np.ones((1, 1 << 18), np.float32)
            alive.append(index)
            yield {"x": x}

    prepared = _prepared(NET, MINMAX, "x", "a", "y")
    # a generator is not drawn ahead of the batch that runs
    calibrate(prepared, samples, progress=lambda done, _: alive.append(-done))
    assert alive == [0, -1, 1, -2, 2, -3, 3, -4]


def test_a_checkpoint_goes_on_from_where_it_was_and_gives_what_one_run_gives(
    tmp_path: Path,
) -> None:
    prepared, batches = _prepared(NET, MINMAX, "x", "a", "y"), _batches(6)
    kept = Checkpoint(tmp_path / "kept.stats", every_s=0)

    def until_the_power_fails() -> Iterator[dict[str, Array]]:
        yield from batches[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(prepared, until_the_power_fails(), checkpoint=kept)
    seen = len(Statistics.load(kept.path).batches)
    assert 0 < seen <= 4
    resumed, whole = calibrate(prepared, batches, checkpoint=kept), calibrate(prepared, batches)
    for name, statistics in (("resumed", resumed), ("whole", whole)):
        statistics.save(tmp_path / name)
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert kept.path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_checkpoint_is_written_no_more_often_than_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    save = Statistics.save

    def count(self: Statistics, path: str | Path) -> None:
        written.append(len(self.batches))
        save(self, path)

    monkeypatch.setattr(Statistics, "save", count)
    calibrate(_prepared(NET, MINMAX, "a"), _batches(6), checkpoint=tmp_path / "kept.stats")
    assert written == [6]  # a minute has not passed: only the end


def test_a_checkpoint_counts_on_top_of_the_statistics_that_it_began_with(tmp_path: Path) -> None:
    prepared, batches, kept = _prepared(NET, MINMAX, "a"), _batches(6), tmp_path / "kept.stats"
    first = calibrate(prepared, batches[:2])
    calibrate(prepared, batches[2:4], statistics=first, checkpoint=kept)
    on_top = calibrate(prepared, batches[2:], statistics=first, checkpoint=kept)
    _same(on_top, calibrate(prepared, batches))


def test_a_checkpoint_of_another_model_or_damaged_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "kept.stats"
    calibrate(_prepared(NET, MINMAX, "a"), _batches(1), checkpoint=kept)
    other = _prepared(NET.replace("{2}", "{3}"), MINMAX, "a")
    with pytest.raises(CalibrationError, match=r"checkpoint '.*kept.stats': .*Delete it, or name"):
        calibrate(other, _batches(1), checkpoint=kept)
    kept.write_text("damaged")
    with pytest.raises(CalibrationError, match=r"checkpoint '.*kept.stats': .*Delete it, or name"):
        calibrate(other, _batches(1), checkpoint=kept)
    with pytest.raises(CalibrationError, match="wanted 0 or more"):
        Checkpoint(kept, every_s=float("nan"))


def test_a_checkpoint_is_a_path() -> None:
    given = cast("Any", 5)
    with pytest.raises(QConfigError, match="checkpoint is an int; wanted the path of a file"):
        calibrate(_prepared(NET, MINMAX, "a"), [], checkpoint=given)


def test_a_checkpoint_of_another_shard_is_refused(tmp_path: Path) -> None:
    prepared, batches, kept = _prepared(NET, MINMAX, "a"), _batches(4), tmp_path / "kept.stats"
    first = calibrate(prepared, batches, shard=Shard(0, 2), checkpoint=kept)
    before = kept.read_bytes()
    for shard in (Shard(1, 2), Shard()):
        with pytest.raises(CalibrationError, match=r"it is of shard '1/2'; this run is of '\d/\d'"):
            calibrate(prepared, batches, shard=shard, checkpoint=kept)
    assert kept.read_bytes() == before
    both = calibrate(prepared, batches, statistics=first, shard=Shard(1, 2), first_batch=0)
    both.save(kept)
    again = calibrate(
        prepared, batches, statistics=first, shard=Shard(1, 2), first_batch=0, checkpoint=kept
    )
    _same(again, both)


def test_a_batch_size_and_names_to_ignore_are_taken() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    samples = {"x": np.ones((4, 2), np.float32), "label": np.ones(3)}
    assert len(calibrate(prepared, Samples(samples, batch_size=2, ignore=["label"])).batches) == 2


def test_merged_shards_know_which_one_is_missing() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    parts = [calibrate(prepared, _batches(8), shard=Shard(i, 4)) for i in (0, 2, 3)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    (note,) = merged.notes()
    assert "of 3 of 4 shards: '2/4' missing. Calibrate with --shard 2/4" in note
    whole = merged.merge(calibrate(prepared, _batches(8), shard=Shard(1, 4)))
    assert whole.notes() == []


def test_state_that_goes_round_is_noted_only_where_it_stays_zero() -> None:
    prepared = _prepared(RUNNING, MINMAX, "y", total="state")
    ones = np.ones((1, 2), np.float32)
    begun = [{"x": ones, "state": 0 * ones}, {"x": 2 * ones}, {"x": 3 * ones}]
    assert calibrate(prepared, begun).notes() == []
    given = [{**batch, "state": 0 * ones} for batch in begun]
    assert "'state' is 0 everywhere" in " ".join(calibrate(prepared, given).notes())


def test_suspicious_samples_are_noted() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    one = np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 8)
    pixels = np.arange(256, dtype=np.float32).reshape(4, 64)

    def notes(samples: Array) -> str:
        return " ".join(calibrate(prepared, {"x": samples}).notes())

    assert "on one sample; 100 to 500 are usual" in notes(one)
    assert "all 3 batches of the samples are the same one" in notes(one.repeat(3, axis=0))
    remedy = notes(np.zeros((2, 4), np.float32))
    assert "'x' is 0 everywhere in all samples" in remedy
    assert "--feedback" in remedy
    assert "'x' has whole numbers from 0 to 255, as pixels" in notes(pixels)
    for fine in (pixels / 255, pixels - 128, pixels * 4, np.concatenate([one, one + 1])):
        assert notes(fine) == ""


def test_what_only_watches_never_stops_a_calibration() -> None:
    text = "g (float[n,k] x) => (float[n,k] y) { a = Log(x) y = Relu(a) }"
    prepared = dataclasses.replace(
        _prepared(text, MINMAX, "x"),
        probed={"a": NormalizationObserver.with_args(), "x": FloatHistogramObserver.with_args()},
    )
    batches = [{"x": np.array([[1.0, size]], np.float32)} for size in (2.0, 0.0, 3.0)]
    seen = calibrate(prepared, batches).probed
    assert seen["x"].state()["counts"].sum() == 6
    assert seen["a"].state()["count"] == 2  # the logarithm of 0 is infinite
