"""Repairs of `quantize`: what was wrong, what was done, and what it gives on fresh samples.

    python -m benchmarks repairs   # ten minutes

Drawn models with a fault of a known kind, of which integers lose more than 15 dB; and architectures
of which they lose more than a floor that is asked for. Each is quantized with `repair=None` and
with the default search, from 64 samples. "fresh": the worst output or part of one, on 64 samples
that nothing saw, as `verify` tells it. "CPU s": of all that `quantize` does. "time / float": as its
verdict has it, on one thread. "done": what the search changed.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Missed, Row, Table
from scripts._architectures import Size, build
from scripts._architectures._parts import batches
from scripts._graphs import model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    Singles = npt.NDArray[np.float32]

REPAIRS = Table(
    "repairs",
    {
        **{"model": "", "floor dB": ".0f", "integer nodes: before": "", "integer nodes: after": ""},
        **{"fresh dB: before": ".1f", "fresh dB: after": ".1f"},
        **{"time / float: before": ".2f", "time / float: after": ".2f"},
        **{"CPU s: before": ".1f", "CPU s: after": ".1f", "done": ""},
    },
)
SAMPLES, FLOOR_DB = 64, 15.0
LOW = "{}: {:.1f} dB on fresh samples after the repair; wanted {:.0f} or more"


@dataclass(frozen=True)
class Subject:
    """A model to repair.

    Attributes:
        draw: samples of a seed.
        floor_db: that its outputs have to keep.
        bits: of its weights.
    """

    model: onnx.ModelProto | Path
    draw: Callable[[int], Mapping[str, npt.NDArray[np.generic]]]
    floor_db: float = FLOOR_DB
    bits: int | None = None


def weight(seed: int, *shape: int, inputs: int) -> Singles:
    """Normal numbers of power 1 / inputs."""
    return np.random.default_rng(seed).normal(0, inputs**-0.5, shape).astype(np.float32)


def node(op_type: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    """A node of that name and output."""
    return onnx.helper.make_node(op_type, inputs.split(), [output], output, **attributes)


def offset() -> Subject:
    """A linear layer that takes differences of numbers near 1000."""
    w = weight(1, 768, 768, inputs=768)
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "y")]
    constants = {"w": w - w.mean(axis=0), "v": weight(2, 768, 768, inputs=768)}
    model = model_of(nodes, constants, {"x": ["n", 768]}, {"y": None}, 17)
    return Subject(
        model,
        lambda seed: {
            "x": np.float32(1000)
            + np.random.default_rng(seed).standard_normal((SAMPLES, 768), np.float32)
        },
    )


def pictures(seed: int) -> Mapping[str, Singles]:
    """Noise."""
    x = np.random.default_rng(seed).standard_normal((SAMPLES, 3, 32, 32), np.float32)
    return {"x": x}


def even_pictures(seed: int) -> Mapping[str, Singles]:
    """Pictures near 1000, whose pixels differ by 1."""
    return {"x": np.float32(1000) + pictures(seed)["x"]}


def edges() -> Subject:
    """Filters that take differences of neighbours, and convolutions."""
    w = weight(3, 64, 3, 3, 3, inputs=27)
    nodes = [
        node("Conv", "x w", "a"),
        node("Relu", "a", "b"),
        node("Conv", "b v", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "d"),
        node("Conv", "d u", "y", pads=[1, 1, 1, 1]),
    ]
    constants = {"w": w - w.mean(axis=(1, 2, 3), keepdims=True)}
    constants |= {name: weight(i, 64, 64, 3, 3, inputs=576) for i, name in enumerate("vu", 5)}
    model = model_of(nodes, constants, {"x": ["n", 3, 32, 32]}, {"y": None}, 17)
    return Subject(model, even_pictures)


def boxes() -> Subject:
    """Boxes in pixels and scores from one convolution, in one tensor."""
    head = weight(6, 84, 32, 1, 1, inputs=32)
    head[:4] *= 300
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "a", "b"),
        node("Conv", "b v", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "d"),
        node("Conv", "d head", "y"),
    ]
    constants = {"w": weight(7, 32, 3, 3, 3, inputs=27), "v": weight(8, 32, 32, 3, 3, inputs=288)}
    model = model_of(nodes, {**constants, "head": head}, {"x": ["n", 3, 32, 32]}, {"y": None}, 17)
    return Subject(model, pictures)


def coarse() -> Subject:
    """Linear layers whose weights have 2 bits."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "y")]
    constants = {n: weight(i, 768, 768, inputs=768) for i, n in enumerate("wv", 9)}
    model = model_of(nodes, constants, {"x": ["n", 768]}, {"y": None}, 17)

    def draw(seed: int) -> Mapping[str, Singles]:
        return {"x": np.random.default_rng(seed).standard_normal((SAMPLES, 768), np.float32)}

    return Subject(model, draw, bits=2)


DRAWN = {"offset": offset, "edges": edges, "boxes": boxes, "2 bits": coarse}
ASKED = {"lcnet": 30.0, "shufflenet": 35.0, "regnet_y": 35.0, "yolo": 35.0}
"""Architectures, and floors above what integers keep of them."""


def architecture(name: str, folder: Path) -> Subject:
    """One with drawn weights, at its real width."""
    module, feeds = build(name, Size.REAL)
    onnxq.export(module, feeds(4, 5), folder / "float.onnx")

    def draw(seed: int) -> Mapping[str, npt.NDArray[np.generic]]:
        (batch,) = batches(feeds(SAMPLES, seed), SAMPLES)
        return batch

    return Subject(folder / "float.onnx", draw, ASKED[name])


@benchmark(REPAIRS)
def measure() -> Iterator[Row | Missed]:
    """A row per model; those that stay below their floor are missed."""
    warnings.simplefilter("ignore", UserWarning)  # of models that are low
    for name in (*DRAWN, *ASKED):
        with tempfile.TemporaryDirectory() as folder:
            made = DRAWN[name]() if name in DRAWN else architecture(name, Path(folder))
            yield from repaired(name, made)


def repaired(name: str, subject: Subject) -> Iterator[Row | Missed]:
    """The row of one model."""
    figures = [quantized(subject, each) for each in (None, onnxq.Repair(subject.floor_db))]
    nodes, fresh_db, ratios, cpu_s, notes = zip(*figures, strict=True)
    yield REPAIRS.row(name, subject.floor_db, *nodes, *fresh_db, *ratios, *cpu_s, done(notes[1]))
    if fresh_db[1] < subject.floor_db:
        yield Missed(LOW.format(name, fresh_db[1], subject.floor_db))


def done(notes: Sequence[str]) -> str:
    """The change that the search made, or why it made none, from the notes of a verdict."""
    for mark in ("the repair: ", "not repaired: "):
        for note in notes:
            if note.startswith(mark):
                return note.removeprefix(mark)
    return next((n.partition("dB: ")[2] for n in notes if n.startswith("repaired, ")), "")


def quantized(
    subject: Subject, repair: onnxq.Repair | None
) -> tuple[int, float, float, float, Sequence[str]]:
    """(nodes in integers, dB on fresh samples, time over float, CPU s, notes)."""
    begun = time.process_time()
    made = onnxq.quantize(
        subject.model,
        subject.draw(1),
        target="auto",
        weight_bits=subject.bits,
        check=onnxq.Check(repair=repair),
    )
    spent = time.process_time() - begun
    found = onnxq.verify(subject.model, made, onnxq.Samples(subject.draw(2), 8))
    verdict = made.verdict
    assert verdict is not None
    parts = [output.worst_part for output in found.outputs]
    part_db = [part.sqnr_db for part in parts if part is not None]
    fresh_db = min(*(output.sqnr_db for output in found.outputs), *part_db, np.inf)
    ratio = 1 / verdict.speedup if verdict.speedup else float("nan")
    return verdict.integer_nodes, fresh_db, ratio, spent, verdict.notes
