"""Trees that onnxq is imported from, and the files that they write, in processes of their own."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts._same_bytes.machine import this_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ("onnxq", "operators")  # of a commit: what `import onnxq` needs
BUILDERS = (
    *("scripts/_same_bytes/nets.py", "scripts/_same_bytes/job.py", "scripts/_architectures"),
    *("models", "tests/golden_models.py", "tests/examples.py"),
)
"""Files of the working tree that decide, beside the package, which bytes are written."""
WEIGHTS = {".npz", ".safetensors"}

# torch.onnx.export names values by the hashes of strings: 'offsets_6' or 'offsets_7' in dlrm
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
"""Environment of the processes."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that holds the package, and the folder for the files that it writes."""

    package: Path
    files: Path


def commit_of(revision: str) -> str:
    """The full hash of a commit.

    Raises:
        SystemExit: git knows no such commit.
    """
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise SystemExit(f"'{revision}' is no file and no commit that git knows here.")
    return found.stdout.strip()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A temporary folder with the package as it was in a commit."""
    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        archive = subprocess.run(
            ["git", "archive", commit, *PACKAGE], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


@contextmanager
def working_copy() -> Iterator[Path]:
    """A temporary folder with the package as it is now: a rebase meanwhile does not reach it."""
    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        for name in PACKAGE:
            shutil.copytree(
                ROOT / name,
                Path(folder) / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        yield Path(folder)


def cache_of(commit: str) -> Path:
    """Where the files of a commit are kept for this machine, these versions and builders.

    All worktrees of a clone share it. It may be deleted at any time.
    """
    common = subprocess.run(
        ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    key = hashlib.sha256(json.dumps(asdict(this_machine())).encode())
    for entry in BUILDERS:
        path = ROOT / entry
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.suffix == ".py":
                key.update(_integer(file.read_text("utf-8")))
            elif file.suffix in WEIGHTS:
                key.update(file.read_bytes())
    parent = Path(common.stdout.strip()).parent
    folder = parent / ".cache" / "same_bytes" / f"{commit[:12]}-{key.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _integer(text: str) -> bytes:
    """Code that a module runs: without comments, docstrings and line numbers."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]  # it has one
                one
                for one in body
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]
    return ast.dump(tree).encode()


def write_files(trees: Sequence[Tree], names: Sequence[str], jobs: int) -> None:
    """Makes the files that are not there yet; what fails is told on stderr, and has no folder."""
    work = []
    for tree in trees:
        missing = [name for name in names if not (tree.files / name).is_dir()]
        work += [(tree, share) for i in range(jobs) if (share := missing[i::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda each: _run(*each), work))


def _run(tree: Tree, names: list[str]) -> None:
    """One process, whose kernels of NumPy and torch have one thread."""
    paths = os.pathsep.join([str(tree.package), str(ROOT)])
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "scripts._same_bytes.job"),
            *(str(tree.package), str(tree.files), *names),
        ],
        env={**os.environ, **SETTINGS, "PYTHONPATH": paths},
        check=False,
    )
