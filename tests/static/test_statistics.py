from __future__ import annotations

import json
import pickle
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError, OutputError
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    Observer,
    ObserverSpec,
    PerChannelMinMaxObserver,
)
from onnxq.static.seen_samples import SeenInput, SeenSamples
from onnxq.static.shard import Shard
from onnxq.static.statistics import NotFinite, Statistics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onnxq.qparams import QParams

HASH = "a" * 64
SPECS = {
    "x": MinMaxObserver.with_args(),
    "conv/y:0": HistogramObserver.with_args(bins=256),
    "z": PerChannelMinMaxObserver.with_args(ch_axis=1),
    "w": MovingAverageMinMaxObserver.with_args(averaging_constant=0.5),
}


def _statistics(batches: list[int], specs: dict[str, ObserverSpec] | None = None) -> Statistics:
    observers: dict[str, Observer] = {
        n: s() for n, s in (SPECS if specs is None else specs).items()
    }
    for index in batches:
        x = np.random.default_rng(index).standard_normal((4, 3), np.float32)
        for observer in observers.values():
            observer.observe(x, index)
    return Statistics(
        HASH,
        MappingProxyType(observers),
        {i: 7 * i for i in batches},
        dict.fromkeys(observers, len(batches)),
    )


def _same(a: Statistics, b: Statistics) -> None:
    assert a.model_hash == b.model_hash
    assert list(a.batches.items()) == list(b.batches.items())
    assert a.counts == b.counts
    assert a.observers.keys() == b.observers.keys()
    for name, observer in a.observers.items():
        ours, theirs = observer.state(), b.observers[name].state()
        assert observer.spec == b.observers[name].spec
        assert ours.keys() == theirs.keys()
        for key, array in ours.items():
            np.testing.assert_array_equal(array, theirs[key], strict=True)


def test_a_saved_file_loads_to_the_same_statistics(tmp_path: Path) -> None:
    statistics = _statistics([0, 1, 5])
    statistics.save(tmp_path / "net.stats")
    loaded = Statistics.load(tmp_path / "net.stats")
    _same(loaded, statistics)
    for name, observer in loaded.observers.items():
        assert observer.calculate_qparams() == statistics.observers[name].calculate_qparams()


def test_statistics_that_saw_nothing_are_saved_too(tmp_path: Path) -> None:
    _statistics([]).save(tmp_path / "net.stats")
    _same(Statistics.load(tmp_path / "net.stats"), _statistics([]))


def test_equal_statistics_give_equal_files_without_pickles(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _statistics([0, 1]).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with np.load(tmp_path / "a", allow_pickle=False) as arrays:
        assert json.loads(arrays["header"].tobytes())["format"] == "onnxq.stats"


def test_saving_leaves_one_file_and_replaces_an_old_one(tmp_path: Path) -> None:
    _statistics([0]).save(tmp_path / "net.stats")
    _statistics([0, 1]).save(tmp_path / "net.stats")
    assert [path.name for path in tmp_path.iterdir()] == ["net.stats"]
    assert Statistics.load(tmp_path / "net.stats").next_batch == 2


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: folder .*none' does not exist"):
        _statistics([0]).save(tmp_path / "none" / "net.stats")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.stats"
    _statistics([0]).save(path)
    old = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OutputError, match="No space left"):
        _statistics([0, 1]).save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["net.stats"]


@pytest.mark.parametrize("kept", [0, 1, 10, 100, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_an_error(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "net.stats"
    _statistics([0]).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: kept if isinstance(kept, int) else int(len(data) * kept)])
    with pytest.raises(CalibrationError, match="cannot be read"):
        Statistics.load(path)


def test_an_altered_byte_is_an_error_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "net.stats"
    statistics = _statistics([0])
    statistics.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(data), 60):
        altered = bytearray(data)
        altered[place] ^= 0x55
        path.write_bytes(bytes(altered))
        try:
            loaded = Statistics.load(path)
        except CalibrationError:
            refused += 1
        else:  # a byte that no reader looks at, such as a date
            _same(loaded, statistics)
    assert refused > 30


@pytest.mark.parametrize("content", [b"", b"no statistics", b"{}"])
def test_another_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.stats").write_bytes(content)
    with pytest.raises(CalibrationError, match=r"damaged or no \.stats file"):
        Statistics.load(tmp_path / "net.stats")


def test_an_npz_or_npy_of_samples_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    np.save(tmp_path / "b.npy", np.zeros(3))
    for name in ("a.npz", "b.npy"):
        with pytest.raises(CalibrationError, match=r"(damaged|and|or) no \.stats file"):
            Statistics.load(tmp_path / name)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="there is no such file"):
        Statistics.load(tmp_path / "net.stats")


def test_checks_beyond_their_32_bits_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "net.stats"
    _statistics([0, 1, 5]).save(path)
    arrays = dict(np.load(path))
    arrays["checks"] = np.full(len(arrays["checks"]), 1 << 62, np.int64)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(CalibrationError, match="'checks' has numbers that are negative, or 429"):
        Statistics.load(path)


def test_a_newer_format_is_an_error(tmp_path: Path) -> None:
    header = {"format": "onnxq.stats", "version": 9, "model_hash": HASH, "tensors": []}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "net.npz", header=text)
    with pytest.raises(CalibrationError, match=r"have format onnxq.stats 9.*update onnxq"):
        Statistics.load(tmp_path / "net.npz")


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=lambda order: "".join(map(str, order))
)
def test_shards_merge_to_the_same_in_any_order(order: tuple[int, ...]) -> None:
    shards = [_statistics(list(range(i, 9, 3))) for i in range(3)]
    a, b, c = (shards[i] for i in order)
    whole = _statistics(list(range(9)))
    _same(a.merge(b).merge(c), whole)
    _same(a.merge(b.merge(c)), whole)


def test_merging_leaves_both_as_they_are() -> None:
    a, b = _statistics([0]), _statistics([1])
    a.merge(b)
    _same(a, _statistics([0]))
    _same(b, _statistics([1]))


def test_a_batch_is_not_counted_twice() -> None:
    with pytest.raises(CalibrationError, match="batch 1 is in both statistics"):
        _statistics([0, 1]).merge(_statistics([1, 2]))


def test_statistics_of_another_model_are_refused() -> None:
    other = Statistics("b" * 64, {}, {}, {})
    with pytest.raises(CalibrationError, match=r"another model \(hash bbbb"):
        _statistics([0]).merge(other)
    with pytest.raises(CalibrationError, match="of another model"):
        _statistics([0]).check_model("c" * 64)
    _statistics([0]).check_model(HASH)


def test_statistics_of_other_tensors_or_observers_do_not_merge() -> None:
    fewer = {name: spec for name, spec in SPECS.items() if name != "x"}
    with pytest.raises(CalibrationError, match="'x' is in one of the statistics only"):
        _statistics([0]).merge(_statistics([1], fewer))
    with pytest.raises(CalibrationError, match="tensor 'x'"):
        _statistics([0]).merge(_statistics([1], SPECS | {"x": HistogramObserver.with_args()}))


def test_an_observer_is_given_by_tensor_and_spec() -> None:
    statistics = _statistics([0])
    assert statistics.observer("x", SPECS["x"]) is statistics.observers["x"]
    with pytest.raises(CalibrationError, match=r"'conv/y:1' is not.*Did you mean 'conv/y:0'"):
        statistics.observer("conv/y:1", SPECS["x"])
    with pytest.raises(CalibrationError, match=r"'x' was observed by MinMaxObserver\(\)"):
        statistics.observer("x", HistogramObserver.with_args())


class _Own(Observer):
    """An observer that a user wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:  # noqa: ARG002  # contract
        self.seen += x.size

    def merge(self, other: _Own) -> _Own:
        merged = type(self)()
        merged.seen = self.seen + other.seen
        return merged

    def calculate_qparams(self) -> QParams:
        return self.range.default()

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        return {"seen": np.array(self.seen)}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.seen = int(state["seen"])


def test_a_users_own_observer_is_saved_and_merged(tmp_path: Path) -> None:
    specs = {"x": ObserverSpec("_Own")}
    _statistics([0], specs).merge(_statistics([1], specs)).save(tmp_path / "net.stats")
    loaded = Statistics.load(tmp_path / "net.stats").observers["x"]
    assert isinstance(loaded, _Own)
    assert loaded.seen == 24


def test_statistics_pickle_as_what_they_are() -> None:
    seen = replace(
        _statistics([0, 1]),
        not_finite={"x": NotFinite(1, "all")},
        shards=frozenset([Shard(1, 4)]),
        samples=SeenSamples(3, {"x": SeenInput(0.0, 1.0, False)}),
    )
    back = pickle.loads(pickle.dumps(seen))
    _same(back, seen)
    assert (back.not_finite, back.shards, back.samples) == (
        seen.not_finite,
        seen.shards,
        seen.samples,
    )


def test_a_file_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.samples.columns.BOMB_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "m.npz", header=np.zeros(1 << 21, np.uint8))
    with pytest.raises(CalibrationError, match="unpack to far more than statistics have"):
        Statistics.load(tmp_path / "m.npz")
