"""Anonymous memory (RssAnon) and CPU time of group-wise weights, on a decoder of 5 GB.

    python -m benchmarks weights_memory [--layers 2]

One process makes the model (random weights, external data, a vocabulary of 256,000 tokens; the
matrix of the logits stays in float), another one quantizes it with each method: load, canonicalize,
plan, walk, solve, save, on 8 samples of 128 tokens. A thread samples /proc/self/status meanwhile.
Beside them MatMulNBitsQuantizer of onnxruntime, which rounds to nearest: load, process, save. Then
the first method is killed (SIGKILL) when its journal has half of the integers, and goes on: its
file must have the same bytes. Needs twice the model's size on disk, and for onnxruntime more than
that in memory. Linux only.
"""

from __future__ import annotations

import filecmp
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import onnx

from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import FILE
from benchmarks.harness.table import Missed, Row, Table
from benchmarks.memory import PEAK, Peak
from onnxq.checking.check import Check
from onnxq.checking.weights_job import WeightsJob, carry_out_weights
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.graph.saving import save
from onnxq.ort.types_by_run import types_by_run
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.samples import Samples
from onnxq.weights.weight_plan import WeightRequest
from scripts._decoder import Sizes, decoder, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABULARY, WIDTH, HIDDEN, HEADS = 256_000, 2048, 5632, 16
SAMPLES, LENGTH = 8, 128
METHODS = (Method.RTN, Method.GPTQ)
LEFT = ("MatMul_logits",)
MEMORY = Table(
    "methods",
    {"method": "", "model GB": ".2f", "quantized GB": ".2f", **PEAK, "CPU s": ".0f"},
)
OUTPUT, JOURNAL, LAYERS = "quantized.onnx", "integers", "layers"
"""Names in the folder of each run: a model names its external data."""
PEER = "onnxruntime"
POLL_S = 0.2


def sizes(layers: int) -> Sizes:
    """Sizes of the decoder."""
    return Sizes(VOCABULARY, WIDTH, HIDDEN, layers, HEADS)


def quantize(folder: Path, method: Method, name: str) -> list[float]:
    """Writes the quantized model into a folder of that name: GB, MiB, and CPU seconds."""
    output = folder / name
    output.mkdir(exist_ok=True)
    layers = int((folder / LAYERS).read_text())
    batches = list(tokens(sizes(layers), SAMPLES, LENGTH))
    with Peak() as peak:
        began = time.process_time()
        model = canonicalize(load(folder / "model.onnx"), types_by_run).model
        request = WeightRequest(GroupSpec(), method, LEFT)
        job = WeightsJob(model, request, Samples(batches), check=Check.NONE)
        made = carry_out_weights(job, place=output / JOURNAL)
        save(made.model, output / OUTPUT)
        seconds = time.process_time() - began
    return [*map(_gigabytes, (folder, output)), *peak.mib(), seconds]


def quantize_by_onnxruntime(folder: Path) -> list[float]:
    """Figures of `quantize` for ONNX Runtime's quantizer: the same groups, the logits in float."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    output = folder / PEER
    output.mkdir()
    with Peak() as peak:
        began = time.process_time()
        model = onnx.load(folder / "model.onnx")
        options = {"block_size": GroupSpec().group_size, "accuracy_level": 4, "bits": 4}
        made = MatMulNBitsQuantizer(model, **options, nodes_to_exclude=list(LEFT))
        made.process()
        made.model.save_model_to_file(str(output / OUTPUT), use_external_data_format=True)
        seconds = time.process_time() - began
    return [*map(_gigabytes, (folder, output)), *peak.mib(), seconds]


def _gigabytes(folder: Path) -> float:
    """Size of a model with its external data."""
    return sum(file.stat().st_size for file in folder.glob("*.onnx*")) / 1e9


def make(folder: Path, layers: int) -> None:
    """The model, and the number of its layers."""
    save(decoder(sizes(layers)), folder / "model.onnx")
    (folder / LAYERS).write_text(str(layers))


def killed_and_resumed(folder: Path, method: Method) -> str:
    """Names of files of other bytes where a run is killed in the middle, and goes on."""
    whole, again = folder / method.value, folder / "again"
    journal = again / JOURNAL
    half = (whole / JOURNAL).stat().st_size // 2
    first = multiprocessing.get_context("spawn").Process(
        target=quantize, args=(folder, method, again.name)
    )
    first.start()
    while not journal.exists() or journal.stat().st_size < half:
        if not first.is_alive():
            raise click.ClickException("the run that was to be killed ended by itself")
        time.sleep(POLL_S)
    first.kill()
    first.join()
    apart(quantize, folder, method, again.name)
    files = sorted(path.name for path in whole.iterdir())
    _, other, missing = filecmp.cmpfiles(whole, again, files, shallow=False)
    return ", ".join(other + missing)


@benchmark(MEMORY)
@click.option("--layers", default=2, show_default=True)
@click.option("--folder", type=FILE, help="where to put the models; default: a temporary one")
def measure(layers: int, folder: Path | None) -> Iterator[Row | Missed]:
    """A row per method, and whether a run that was killed comes to the same bytes."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        apart(make, place, layers)
        for method in METHODS:
            yield MEMORY.row(method.value, *apart(quantize, place, method, method.value))
        yield MEMORY.row("rtn of onnxruntime", *apart(quantize_by_onnxruntime, place))
        if other := killed_and_resumed(place, METHODS[0]):
            yield Missed(f"{METHODS[0].value}, killed and gone on with: other bytes in {other}")
