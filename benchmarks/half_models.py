"""float16 of models out of packages and of transformers: error, size, time, and WebAssembly.

    scripts/setup_wasm                     # once
    python -m benchmarks half_models       # ten minutes

`onnxq.half` of float32 models (scripts/_corpus/packages.py, on made-up inputs; small transformers
with drawn weights), from eight batches. dB: SQNR of the worst output against the float32 model's,
on four others. Size and time: over the float32 file's; CPU time on one thread of ONNX Runtime's CPU
provider, in turns. web dB: the file's outputs in onnxruntime-web, in Node, against the float32
model's here. "float32": nodes that stay so and why, the most frequent three.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import RATIO, Missed, Row, Table
from benchmarks.parts.qat_models import build
from onnxq.errors import OnnxqError
from scripts._corpus.packages import MODELS
from scripts._tables import sqnr_db
from scripts._timing import ratio_of, runs_on, session
from tests.isa.machines import run, save_case
from tests.wasm.machine import WASM, find_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.core.arrays import Array
    from scripts._peer import Batch

HALF = Table(
    "models",
    {
        **{"model": "", "float16 nodes": "", "dB": ".1f", "size": ".2f", "time": RATIO},
        **{"web dB": ".1f", "float32": ""},
    },
)
TRANSFORMERS = (
    *("bert", "distilbert", "albert", "gpt2", "llama", "vit", "t5", "segformer", "wav2vec2"),
    "whisper",
)
SAMPLES, OTHERS, ROUNDS, LEAST_DB = 8, 4, 21, 40.0
MARK = " nodes are float16; float32 stay: "


def subjects(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Path, list[Batch]]]:
    """(name, float32 file, batches) of each model."""
    for model in MODELS:
        if not names or model.name in names:
            yield model.name, model.path, model.batches(SAMPLES + OTHERS, seed=0)
    for name in TRANSFORMERS:
        if names and name not in names:
            continue
        module, inputs = build(name)
        path = folder / f"{name}.onnx"
        onnxq.export(module, inputs, path)
        yield name, path, [drawn(inputs, seed) for seed in range(SAMPLES + OTHERS)]


def drawn(inputs: dict[str, torch.Tensor], seed: int) -> Batch:
    """Other inputs of the same shapes: tokens in another order, other numbers."""
    generator = torch.Generator().manual_seed(seed)
    found: Batch = {}
    for name, x in inputs.items():
        places = torch.randperm(x.numel(), generator=generator)
        found[name] = (
            torch.randn(x.shape, generator=generator)
            if x.is_floating_point()
            else x.flatten()[places].reshape(x.shape)
        ).numpy()
    return found


def worst_db(wanted: Sequence[Array], got: Sequence[Array]) -> float:
    """SQNR of the worst output."""
    pairs = zip(wanted, got, strict=True)
    return min(sqnr_db(np.float64(x).ravel(), np.float64(y).ravel()) for x, y in pairs)


@benchmark(HALF, needs=("torch", "transformers"))
@with_names((*(model.name for model in MODELS), *TRANSFORMERS))
def measure(names: Sequence[str]) -> Iterator[Row | Missed]:
    """A row per model."""
    modules = find_modules()
    with tempfile.TemporaryDirectory() as place:
        for name, path, batches in subjects(names, Path(place)):
            with tempfile.TemporaryDirectory() as own:
                yield from row(name, path, batches, modules, Path(own))


def row(
    name: str, source: Path, batches: list[Batch], modules: Path, folder: Path
) -> Iterator[Row | Missed]:
    """Figures of a model, or why there is none."""
    path, cases = folder / "half.onnx", folder / "cases"
    try:
        made = onnxq.half(source, batches[:SAMPLES])
    except OnnxqError as error:
        yield HALF.row(name, None, None, None, None, None, f"{error!s:.160}")
        return
    made.save(path)
    cases.mkdir()
    others, verdict = batches[SAMPLES:], made.verdict
    notes = verdict.notes if verdict else ()
    note = next((n for n in notes if MARK in n), "all")
    count, _, stay = note.partition(MARK)
    pair = {"float32": session(source), "float16": session(path)}
    wanted, got = ([each.run(None, one) for one in others] for each in pair.values())
    db = min(worst_db(*both) for both in zip(wanted, got, strict=True))
    save_case(cases, "half", path.read_bytes(), others[0])
    try:
        web = run(WASM, modules, cases, folder / "results").outputs("half")
        web_db: float | str = worst_db(wanted[0], web)
    except AssertionError as error:
        web_db = f"{error!s:.120}"
    runs = runs_on(pair, others[0])
    ratio = ratio_of(runs["float16"], runs["float32"], ROUNDS)
    size = path.stat().st_size / source.stat().st_size
    stayed = ", ".join(stay.split(", ")[:3])
    yield HALF.row(name, count, db, size, ratio.cell, web_db, stayed)
    if db < LEAST_DB or isinstance(web_db, str):
        yield Missed(f"{name}: {db:.1f} dB, in WebAssembly {web_db}")
