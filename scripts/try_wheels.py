"""The wheel and the sdist, installed into empty environments of each Python that is at hand.

    python scripts/try_wheels.py                    # every python3.N on the path and of pyenv
    python scripts/try_wheels.py --python /usr/bin/python3

Both are built as a release is, and checked by `twine check --strict`. Then, per Python and file: a
new virtual environment, `pip install FILE` with what it depends on, `pip check`, `onnxq --version`,
and from an empty folder `onnxq doctor` and a model of two MatMuls that is quantized, verified and
predicted. The exit code is 1 where anything fails. Needs a package index; minutes. The table that
this printed is in scripts/try_wheels.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
PYENV = Path("~/.pyenv/versions").expanduser()
MAIN_JOB = """
import numpy as np, onnx, onnxq
from onnx import helper, numpy_helper
rng = np.random.default_rng(0)
w = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
value = lambda name: helper.make_tensor_value_info(name, 1, ["N", 16])
nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["r"])]
nodes.append(helper.make_node("MatMul", ["r", "w1"], ["y"]))
graph = helper.make_graph(nodes, "net", [value("x")], [value("y")])
graph.initializer.extend(numpy_helper.from_array(x, f"w{i}") for i, x in enumerate(w))
opset = [helper.make_opsetid("", 21)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), "net.onnx")
np.save("x.npy", rng.standard_normal((64, 16)).astype(np.float32))
"""
COMMANDS = (
    ("--version",),
    ("doctor",),
    ("quantize", "net.onnx", "x.npy", "-o", "net.int8.onnx", "--repair", "off"),
    ("verify", "net.onnx", "net.int8.onnx", "x.npy"),
    ("predict", "net.int8.onnx", "x.npy"),
)


class CommandError(Exception):
    """A command that ended otherwise than with 0."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter.

    Attributes:
        path: of the program.
        version: as it says.
    """

    path: Path
    version: str


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, action="append", help="this one; may be repeated")
    pythons = list(at_hand(parser.parse_args().python))
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = built(folder)
        print(head("Python", "file", "size, kB", "installed", "packages", "main job"))
        for python in pythons:
            for number, file in enumerate(files):
                own = folder / f"{python.version}-{number}"
                cells = tried(python, file, own)
                failed |= any(cell.startswith("FAILED") for cell in cells)
                size = f"{file.stat().st_size / 1000:.0f}"
                print(line(python.version, file.name, size, *cells), flush=True)
                shutil.rmtree(own, ignore_errors=True)
    return int(failed)


def at_hand(named: Sequence[Path] | None) -> Iterator[Python]:
    """The interpreters that onnxq allows: those that are named, or one of each version."""
    found = named or [
        *(Path(each) for n in range(OLDEST[1], 30) if (each := shutil.which(f"python3.{n}"))),
        *sorted(PYENV.glob("3.*/bin/python3")),
    ]
    seen: set[str] = set()
    for path in found:
        try:
            version = said(
                [path, "-c", "import platform; print(platform.python_version())"]
            ).strip()
        except CommandError:  # a shim of pyenv's for a version that is not chosen
            continue
        allowed = tuple(map(int, re.findall(r"\d+", version)[:2])) >= OLDEST
        if allowed and version not in seen:
            seen.add(version)
            yield Python(path, version)


def built(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist, checked by twine."""
    tools = folder / "tools"
    said([sys.executable, "-m", "venv", tools])
    python = tools / "bin" / "python"
    said([python, "-m", "pip", "install", "--quiet", "build", "twine"])
    said([python, "-m", "build", "--outdir", folder / "dist", ROOT])
    (wheel,), (sdist,) = ((folder / "dist").glob(end) for end in ("*.whl", "*.tar.gz"))
    print(said([python, "-m", "twine", "check", "--strict", wheel, sdist]))
    return wheel, sdist


def tried(python: Python, file: Path, folder: Path) -> tuple[str, str, str]:
    """(whether it installs, packages that came with it, what became of the main job)."""
    work = folder / "work"
    try:
        said([python.path, "-m", "venv", folder])
        work.mkdir()
        own = folder / "bin" / "python"
        said([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file])
        said([own, "-m", "pip", "check"])
        packages = said([own, "-m", "pip", "list", "--format=freeze"]).splitlines()
    except CommandError as error:
        return f"FAILED: {error}", "-", "-"
    try:
        said([own, "-c", MAIN_JOB], work)
        for words in COMMANDS:
            said([folder / "bin" / "onnxq", *words], work)
    except CommandError as error:
        return "ok", str(len(packages)), f"FAILED: {error}"
    return "ok", str(len(packages)), "ok"


def said(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Standard output.

    Raises:
        CommandError: it ends with another exit code than 0.
    """
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet["NO_COLOR"] = "1"
    done = subprocess.run(
        command, cwd=folder, env=quiet, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = " ".join(map(str, command[1:4]))
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise CommandError(f"`{words}` ends with {done.returncode}: {' '.join(last)}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
