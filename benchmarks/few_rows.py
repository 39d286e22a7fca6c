"""Models made from few rows: is their verdict true on fresh rows by the thousand?

    python -m benchmarks few_rows   # two minutes

Three MatMuls of 256 channels with Relus between them. Rows are independent numbers, or correlated:
256 numbers that follow 16 and a little noise. "before": SQNR on 4,096 fresh rows of the same way
without samples or without algorithms; "verdict": what `quantize` said of its file; "fresh": on the
4,096 rows; "rows": those the verdict was of, where they are rows that no algorithm fitted.
"""

from __future__ import annotations

import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Row, Table
from onnxq.qconfig import default_qconfig_mapping
from onnxq.quantized.verdict import InputSource
from scripts._graphs import model_of
from scripts._tables import sqnr_db
from scripts._timing import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.quantized.quantized_model import QuantizedModel

    Singles = npt.NDArray[np.float32]
    Draw = Callable[[np.random.Generator, int], Singles]
    Make = Callable[[Path, Singles], QuantizedModel]

WIDTH, OUTPUTS, RANK, FRESH = 256, 16, 16, 4096
ROWS = (1, 4, 16, 64, 256, 1024)
DB = ".1f"
FEW = Table(
    "rows",
    {
        **{"rows given": "", "inputs": "", "way": "", "before": DB, "fresh": DB, "verdict": DB},
        **{"verdict - fresh": "+.1f", "rows": ""},
    },
    keys=3,
)


def network() -> onnx.ModelProto:
    """MatMul, Relu, MatMul, Relu, MatMul, of drawn weights that keep the power."""
    random = np.random.default_rng(0)
    sizes = (WIDTH, WIDTH, WIDTH, OUTPUTS)
    weights = {
        f"w{i}": random.normal(0, np.sqrt(2 / rows), (rows, columns))
        for i, (rows, columns) in enumerate(itertools.pairwise(sizes))
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w2"], ["y"]),
    ]
    return model_of(nodes, weights, {"x": ["n", WIDTH]}, {"y": ["n", OUTPUTS]}, 21)


def independent(random: np.random.Generator, rows: int) -> Singles:
    """Rows whose numbers know nothing of each other."""
    return random.standard_normal((rows, WIDTH), dtype=np.float32)


def correlated(random: np.random.Generator, rows: int) -> Singles:
    """Rows that follow RANK numbers, and a little noise."""
    mixed = np.random.default_rng(1).normal(0, RANK**-0.5, (RANK, WIDTH))
    noise = 0.05 * random.standard_normal((rows, WIDTH))
    return (random.standard_normal((rows, RANK)) @ mixed + noise).astype(np.float32)


DRAWS: Mapping[str, Draw] = {"independent": independent, "correlated": correlated}


def improved(path: Path, x: Singles, *, name: str | None) -> QuantizedModel:
    """The static model, with this PTQ algorithm alone; without repair."""
    qconfig = default_qconfig_mapping().set_improve(() if name is None else (name,))
    check = onnxq.Check(repair=None)
    return onnxq.quantize(path, {"x": x}, qconfig=qconfig, target="x86-vnni", check=check)


def in_groups(path: Path, x: Singles, *, bits: int) -> QuantizedModel:
    """The model with group-wise weights by GPTQ."""
    return onnxq.quantize_weights(path, {"x": x}, method="gptq", bits=bits)


def in_groups_without(path: Path, _: Singles, *, bits: int) -> QuantizedModel:
    """The model with group-wise weights, from no samples."""
    return onnxq.quantize_weights(path, bits=bits)


ALGORITHMS = {"by default": "auto", "round": "round", "bias": "bias", "smooth": "smooth"}
WAYS: Mapping[str, tuple[Make, Make]] = {
    **{
        f"static int8, {said}": (partial(improved, name=name), partial(improved, name=None))
        for said, name in ALGORITHMS.items()
    },
    **{
        f"weights of {bits} bits, gptq": (
            partial(in_groups, bits=bits),
            partial(in_groups_without, bits=bits),
        )
        for bits in (4, 2)
    },
}
"""Way -> how its file is made, and what it must not be worse than."""


@benchmark(FEW)
def measure() -> Iterator[Row]:
    """Verdict and truth of each way for each number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(network(), path)
        for kind, draw in DRAWS.items():
            fresh = draw(np.random.default_rng(2), FRESH)
            wanted = outputs(onnx.load(path), fresh)
            for rows in ROWS:
                x = draw(np.random.default_rng(3), rows)
                for way, (make, make_without) in WAYS.items():
                    made, without = make(path, x), make_without(path, x)
                    truth, before = (
                        sqnr_db(wanted, outputs(each, fresh)) for each in (made, without)
                    )
                    yield row(rows, kind, way, before, truth, made)


def row(rows: int, kind: str, way: str, before: float, truth: float, made: QuantizedModel) -> Row:
    """A row of the table."""
    verdict = made.verdict
    said = None if verdict is None else verdict.worst_db
    apart = None
    if verdict is not None:
        is_apart = verdict.input_source is not InputSource.CALIBRATION
        apart = f"{verdict.samples}" if is_apart else f"{verdict.samples}, fitted"
    difference = None if said is None else said - truth
    return FEW.row(rows, kind, way, before, truth, said, difference, apart)


def outputs(model: onnx.ModelProto | ir.Model, x: Singles) -> Singles:
    """The output for these rows."""
    return np.asarray(session(model).run(None, {"x": x})[0])
