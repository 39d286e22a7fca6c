"""The main job, command by command, on the embedded models and images; then a table of results.

    python scripts/demo.py [--target x86-vnni] [--output FOLDER] [resnet20] [mobilenetv2]

Every step that a user would type is printed and run as typed. The answer of `quantize` is shown;
what the other commands print goes to a log beside the models. The last five lines are where the
files are, and a table. Accuracy is measured here, on the 1,000 embedded test images; speed is what
`onnxq bench` says.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.ort import runtime

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from models.cifar10 import load_sample
from scripts._tables import head, line

if TYPE_CHECKING:
    import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent

FACTORIES = {"resnet20": "models.resnet:resnet20", "mobilenetv2": "models.mobilenet:mobilenetv2"}
SAMPLES = "models/calibration.npz"
CHECKED = "models/test.npz"
BATCH = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the closing table."""

    model: str
    float_top1: float
    int8_top1: float
    float_bytes: int
    int8_bytes: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Job:
    """The commands of one model.

    Attributes:
        log: file that gets what they print, but for `show`.
    """

    log: Path

    def run(self, *arguments: str) -> str:
        """Prints a command of onnxq, runs it, and returns what it printed."""
        print(f"$ onnxq {shlex.join(arguments)}", flush=True)
        command = [sys.executable, "-m", "onnxq", *arguments]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"$ onnxq {shlex.join(arguments)}\n{done.stdout}\n")
        return done.stdout

    def show(self, *arguments: str) -> None:
        """Runs a command as `run` does, and shows what it printed."""
        print(self.run(*arguments), end="", flush=True)


def top1(path: Path, images: npt.NDArray[np.float32], labels: npt.NDArray[np.uint8]) -> float:
    """Share of images whose largest logit is their class."""
    hits = 0
    with runtime.open_session(path) as session:
        for start in range(0, len(images), BATCH):
            (logits,) = session.run({"image": images[start : start + BATCH]})
            hits += int((np.argmax(logits, 1) == labels[start : start + BATCH]).sum())
    return hits / len(images)


def run_model(name: str, folder: Path, target: str) -> Row:
    """The main job for one model; its files go into the folder."""
    job = Job(ROOT / folder / f"{name}.log")
    job.log.unlink(missing_ok=True)
    model, int8, stats = (str(folder / f"{name}{end}") for end in (".onnx", ".int8.onnx", ".stats"))
    weights = f"models/{name}.safetensors"
    job.run("export", FACTORIES[name], "--weights", weights, "-o", model)
    job.run("inspect", model, "--target", target)
    job.run("calibrate", model, SAMPLES, "-o", stats)
    checked = ("--check", CHECKED, "--target", target)
    job.show("quantize", model, "--stats", stats, "-o", int8, *checked)
    job.run("verify", model, int8, SAMPLES)
    job.run("cross-check", int8, SAMPLES, "--batch-size", "32")
    found: dict[str, Any] = json.loads(job.run("bench", model, int8, "--json"))
    images, labels = load_sample("test")
    return Row(
        model=name,
        float_top1=top1(ROOT / model, images, labels),
        int8_top1=top1(ROOT / int8, images, labels),
        float_bytes=found["float_bytes"],
        int8_bytes=found["quantized_bytes"],
        speedup=found["speedup"],
    )


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    names = ("model", "top-1 float", "top-1 int8", "size float", "size int8", "speed")
    lines = [head(*names)]
    for r in rows:
        accuracy = [f"{100 * share:.1f}%" for share in (r.float_top1, r.int8_top1)]
        size = [f"{count / 1e3:.0f} kB" for count in (r.float_bytes, r.int8_bytes)]
        lines.append(line(r.model, *accuracy, *size, f"{r.speedup:.2f}x"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(FACTORIES), help="resnet20, mobilenetv2")
    parser.add_argument("--target", default="auto", help="a name that `onnxq targets` lists")
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder for files")
    args = parser.parse_args()
    unknown = set(args.models) - set(FACTORIES)
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}; known: {', '.join(FACTORIES)}")
    (ROOT / args.output).mkdir(parents=True, exist_ok=True)
    try:
        rows = [run_model(name, args.output, args.target) for name in args.models]
    except subprocess.CalledProcessError as error:  # the command has said why
        sys.exit(error.returncode)
    print(f"\nTarget {args.target}, 1,000 test images; models and logs are in {args.output}")
    print(table(rows))


if __name__ == "__main__":
    main()
