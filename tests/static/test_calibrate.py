from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.errors import CalibrationError
from onnxq.graph.io import model_hash
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    ObserverSpec,
    RecordingObserver,
)
from onnxq.static.calibrate import Calibration, Shard, Statistics, calibrate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.core.arrays import Array

MINMAX = MinMaxObserver.with_args()
RECORD = RecordingObserver.with_args()


@dataclass(frozen=True)
class Prepared:
    """What calibrate reads of the real one."""

    model: ir.Model
    observed: Mapping[str, ObserverSpec]
    feedback: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_hash(self) -> str:
        return model_hash(self.model)


def _prepared(text: str, spec: ObserverSpec, *tensors: str, **feedback: str) -> Prepared:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f"{head} {text}"))
    return Prepared(model, dict.fromkeys(tensors, spec), feedback)


NET = "g (float[n,k] x) => (float[n,k] y) <float[1] w = {2}> { a = Mul(x, w) y = Relu(a) }"


def _batches(count: int) -> list[dict[str, Array]]:
    """Of different sizes in both dimensions."""
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


@pytest.mark.parametrize("op", ["Log", "Reciprocal"])
def test_nan_and_inf_in_an_activation_name_tensor_and_batch(op: str) -> None:
    prepared = _prepared(f"g (float[n] x) => (y) {{ a = {op}(x) y = Neg(a) }}", MINMAX, "x", "a")
    batches = [{"x": np.ones(2, np.float32)}, {"x": np.zeros(2, np.float32)}]
    with pytest.raises(CalibrationError, match=r"tensor 'a': .*batch 1"):
        calibrate(prepared, batches)


def test_bad_samples_are_errors_before_the_model_runs() -> None:
    prepared = _prepared(NET, MINMAX, "a")
    with pytest.raises(CalibrationError, match="no input 'xx'"):
        calibrate(prepared, {"xx": np.zeros((1, 2), np.float32)})
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


def test_a_run_that_failed_half_way_gives_no_statistics() -> None:
    prepared = _prepared("g (float[n] x) => (y) { y = Log(x) }", MINMAX, "x", "y")
    with Calibration(prepared) as run:
        with pytest.raises(CalibrationError, match="tensor 'y'"):
            run.observe({"x": np.zeros(2, np.float32)})
        with pytest.raises(CalibrationError, match="stopped half-way"):
            run.statistics()


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
