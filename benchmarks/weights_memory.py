"""Anonymous memory (RssAnon) and CPU time of weights in blocks, on a decoder of 5 GB.

    python -m benchmarks weights_memory [--layers 2] [--folder FOLDER] [--write FILE]

One process makes the model (random weights, external data, a vocabulary of 256,000 tokens; the
matrix of the logits stays in float), another one quantizes it with each method: load, canonicalize,
plan, walk, solve, save, on 8 samples of 128 tokens. A thread samples /proc/self/status meanwhile.
Then the first method is killed (SIGKILL) when its journal has half of the codes, and goes on: its
file must have the same bytes. Needs 1.5 times the model's size on disk. Linux only.
The lines that this printed are in benchmarks/results/weights_memory.md.
"""

from __future__ import annotations

import argparse
import filecmp
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.memory import PEAK, Peak
from onnxq.checking.check import Check
from onnxq.checking.weights_job import WeightsJob, carry_out_weights
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.graph.saving import save
from onnxq.ort.types_by_run import types_by_run
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.samples import Samples
from onnxq.weights.plan_weights import WeightRequest
from scripts._decoder import Sizes, decoder, tokens
from scripts._tables import head, line, publish

VOCABULARY, WIDTH, HIDDEN, HEADS = 256_000, 2048, 5632, 16
SAMPLES, LENGTH = 8, 128
METHODS = (Method.RTN, Method.GPTQ)
LEFT = ("MatMul_logits",)
OUTPUT, JOURNAL = "quantized.onnx", "codes"
"""Names in the folder of each run: a model names its external data."""
POLL_S = 0.2


def sizes(layers: int) -> Sizes:
    """Sizes of the decoder."""
    return Sizes(VOCABULARY, WIDTH, HIDDEN, layers, HEADS)


def quantize(folder: Path, layers: int, method: Method, output: Path) -> None:
    """Writes the quantized model, and prints a row: GB, MiB before and at most, CPU seconds."""
    batches = list(tokens(sizes(layers), SAMPLES, LENGTH))
    with Peak() as peak:
        began = time.process_time()
        model = canonicalize(load(folder / "model.onnx"), types_by_run).model
        request = WeightRequest(GroupSpec(), method, LEFT)
        job = WeightsJob(model, request, Samples(batches), check=Check.NONE)
        made = carry_out_weights(job, place=output / JOURNAL)
        save(made.model, output / OUTPUT)
        seconds = time.process_time() - began
    read, written = (
        sum(f.stat().st_size for f in place.glob("*.onnx*")) for place in (folder, output)
    )
    cells = [f"{read / 1e9:.2f}", f"{written / 1e9:.2f}", *peak.cells(), f"{seconds:.0f}"]
    print(line(method.value, *cells), flush=True)


def child(arguments: argparse.Namespace, *more: str) -> list[str]:
    """Command of a process of its own: memory of one does not count for another."""
    return [
        sys.executable,
        "-m",
        "benchmarks.weights_memory",
        *("--layers", str(arguments.layers)),
        *("--folder", str(arguments.folder)),
        *more,
    ]


def killed_and_resumed(arguments: argparse.Namespace, method: Method) -> str:
    """A sentence on whether a run that was killed in the middle comes to the same bytes."""
    folder = arguments.folder
    whole, again = folder / method.value, folder / "again"
    journal = again / JOURNAL
    half = (whole / JOURNAL).stat().st_size // 2
    command = child(arguments, "--method", method.value, "--name", again.name)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        while not journal.exists() or journal.stat().st_size < half:
            if first.poll() is not None:
                raise SystemExit("the run that was to be killed ended by itself")
            time.sleep(POLL_S)
        first.kill()
    begun = journal.stat().st_size
    subprocess.run(command, check=True, stdout=subprocess.PIPE)
    files = sorted(path.name for path in whole.iterdir())
    _, other, missing = filecmp.cmpfiles(whole, again, files, shallow=False)
    said = f"other bytes in {', '.join(other + missing)}" if other + missing else "the same bytes"
    return f"{method.value}, killed at {begun / 1e6:.0f} MB of codes and gone on with: {said}."


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--method", help="of one run, which prints its row")
    parser.add_argument("--name", help="of that run's folder")
    arguments = parser.parse_args()
    if arguments.method is not None:
        output = arguments.folder / arguments.name
        output.mkdir(exist_ok=True)
        quantize(arguments.folder, arguments.layers, Method(arguments.method), output)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        arguments.folder = Path(folder)
        save(decoder(sizes(arguments.layers)), arguments.folder / "model.onnx")
        rows = []
        for method in METHODS:
            command = child(arguments, "--method", method.value, "--name", method.value)
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(done.stdout.strip())
        resumed = killed_and_resumed(arguments, METHODS[0])
    columns = ("method", "model GB", "quantized GB", *PEAK, "CPU s")
    publish([head(*columns), *rows, "", resumed], arguments.write)


if __name__ == "__main__":
    main()
