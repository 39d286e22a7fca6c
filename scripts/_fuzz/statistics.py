"""Statistics: .stats files with other arrays, another header, other bytes."""

from __future__ import annotations

import functools
import io
import json
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

import onnxq
from onnxq.observers import (
    EntropyObserver,
    MovingAverageMinMaxObserver,
    PercentileObserver,
    RecordingObserver,
)
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping
from onnxq.static.calibrate import Shard
from onnxq.static.statistics import Statistics
from scripts._fuzz.case import Call, Case, Scratch, command
from scripts._fuzz.fields import mutated_bytes
from scripts._fuzz.plans import altered
from scripts._fuzz.seed_models import float_model, samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.core.arrays import Array
    from onnxq.static.prepared import Prepared

NETS = ("cnn", "transformer", "recurrent")
ACTIVATIONS = (
    None,
    PercentileObserver.with_args(bins=256),
    MovingAverageMinMaxObserver.with_args(),
    EntropyObserver.with_args(bins=256),
    RecordingObserver.with_args(),
)
"""Observers of activations; None: the default one, also per channel where it helps."""


def case(rng: np.random.Generator, scratch: Scratch) -> Case:
    """A .stats file with something made wrong, its model, and another shard of it."""
    name, which = str(rng.choice(NETS)), int(rng.integers(len(ACTIVATIONS)))
    files = statistics(name, which)
    path, stats = scratch.inputs / "m.onnx", scratch.inputs / "s.stats"
    other, sample_file = scratch.inputs / "other.stats", scratch.inputs / "samples.npz"
    settings, qconfig = scratch.inputs / "q.yaml", _qconfig(which)
    path.write_bytes(float_model(name))
    other.write_bytes(files[1])
    settings.write_text(qconfig.to_yaml())
    np.savez(sample_file, allow_pickle=False, **dict(samples(name)))
    kept = scratch.outputs / "kept.stats"
    data, words = _mutated(files[0], rng)
    stats.write_bytes(data)
    kept.write_bytes(data)
    prepared = _prepared(name, which)
    given = ("--qconfig", settings)
    q, new = scratch.outputs / "q.onnx", scratch.outputs / "new.stats"
    calls = [
        command("quantize", path, "--stats", stats, "-o", q, *given),
        command("quantize", path, "--stats", other, "--stats", stats, "-o", q, *given),
        command("calibrate", path, sample_file, "-o", kept, "--resume", *given),
        command("calibrate", path, sample_file, "-o", new, "--checkpoint", kept, *given),
        Call("load, plan", lambda: onnxq.plan(prepared, Statistics.load(stats))),
        Call("load, pickle", lambda: pickle.loads(pickle.dumps(Statistics.load(stats)))),
    ]
    chosen = tuple(calls[i] for i in rng.permutation(len(calls))[:3])
    return Case(f"{name}, {ACTIVATIONS[which] or 'default'}: {words}", chosen)


@functools.cache
def statistics(name: str, which: int) -> tuple[bytes, bytes]:
    """Bytes of the .stats files of two shards."""
    prepared, made = _prepared(name, which), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.stats"
        for index in range(2):
            onnxq.calibrate(prepared, dict(samples(name)), shard=Shard(index, 2)).save(path)
            made.append(path.read_bytes())
    return made[0], made[1]


@functools.cache
def _prepared(name: str, which: int) -> Prepared:
    return onnxq.prepare(onnx.load_from_string(float_model(name)), _qconfig(which))


def _qconfig(which: int) -> QConfigMapping:
    spec = ACTIVATIONS[which]
    mapping = default_qconfig_mapping()
    default = mapping.global_qconfig
    if spec is None or not isinstance(default, QConfig):
        return mapping
    return mapping.set_global(QConfig(spec, default.weight))


def _mutated(good: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    if rng.random() < 0.3:
        return mutated_bytes(good, rng)
    with np.load(io.BytesIO(good)) as loaded:
        arrays: dict[str, Array] = dict(loaded)
    words, header = [], json.loads(arrays["header"].tobytes())
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.4:
            header, how = altered(header, rng)
            arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
            words.append(f"header: {how}")
        else:
            key = str(rng.choice(sorted(arrays)))
            made, how = _array(arrays[key], rng)
            arrays[key] = made
            words.append(f"{key} {how}")
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # see onnxq/static/statistics.py
    return file.getvalue(), "; ".join(words)


def _array(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    made: dict[str, Callable[[], Array]] = {
        "empty": lambda: x[:0] if x.ndim else np.zeros(0, x.dtype),
        "of another rank": lambda: x[None],
        "doubled": lambda: np.concatenate([x.reshape(-1)] * 2),
        "a number": lambda: np.asarray(x.reshape(-1)[0]) if x.size else np.asarray(0),
        "of zeros": lambda: np.zeros_like(x),
        "NaN": lambda: np.full(x.shape, np.nan, np.float32),
        "infinite": lambda: np.full(x.shape, np.inf, np.float32),
        "negative": lambda: np.full(x.shape, -5, np.int64),
        "huge": lambda: np.full(x.shape, 2**62, np.int64),
        "of ones": lambda: np.ones(x.shape, x.dtype if x.dtype.kind in "fiu" else np.float32),
        "text": lambda: np.full(x.shape, "x"),
        "float64": lambda: np.full(x.shape, 1e300),
        "complex": lambda: np.full(x.shape, 1j),
    }
    how = str(rng.choice(list(made)))
    return made[how](), how
