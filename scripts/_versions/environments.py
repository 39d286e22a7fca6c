"""Environments of the matrix: what each holds, and what the core tests say there.

    floors     every declared dependency at its lowest version
    pinned     what the repository's own environment has
    newest     the newest of each that its bounds allow

torch is in none of them; scripts/setup's environment has it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from scripts._tables import head, line
from scripts._versions.core_tests import core_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
KINDS = ("floors", "pinned", "newest")
TESTED_BY = ("filelock", "hypothesis", "pillow", "pytest", "safetensors")
"""Packages that the core tests need beside the declared dependencies, at their newest."""
MARKERS = "not slow and not oracle and not isa and not nightly"
SEED = 28


@dataclass(frozen=True, slots=True)
class Environment:
    """Outcome of the core tests in one environment.

    Attributes:
        kind: of KINDS.
        python: version of the interpreter.
        said: the summary of pytest, or why nothing ran.
        has_run: whether an interpreter was found.
        versions: package -> version.
        wall_s: with the time that the installation takes.
    """

    kind: str
    python: str
    said: str
    has_run: bool = False
    versions: tuple[str, ...] = ()
    wall_s: float = 0.0

    @property
    def is_green(self) -> bool:
        """Whether all tests passed, or there is no such interpreter here."""
        return not self.has_run or (" passed" in self.said and "failed" not in self.said)


def dependencies() -> list[str]:
    """Requirements that pyproject.toml declares, each as it stands there."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return list(declared["project"]["dependencies"])


def requirements(kind: str) -> list[str]:
    """Requirements that pip gets for a kind of environment.

    Args:
        kind: of KINDS.
    """
    declared = dependencies()
    if kind == "newest":
        return declared
    names = [re.split(r"[<>=]", text)[0] for text in declared]
    if kind == "pinned":
        return [f"{name}=={metadata.version(name)}" for name in names]
    lowest = [re.search(r">=([\d.]+)", text) for text in declared]
    pairs = zip(names, lowest, strict=True)
    return [f"{name}=={found[1]}" for name, found in pairs if found is not None]


def interpreter(version: str) -> str | None:
    """The Python of that version on the path or of pyenv; None: there is none."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (sys.executable, shutil.which(f"python{version}"), *map(str, pyenv)):
        code = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
        if candidate is None:
            continue
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return candidate
    return None


def run(kind: str, python: str, folder: Path, part: int) -> Environment:
    """The core tests in a new environment.

    Args:
        kind: of KINDS.
        python: of PYTHONS.
        folder: for environments.
        part: one test of so many is run.
    """
    found, started = interpreter(python), time.perf_counter()
    if found is None:
        return Environment(kind, python, "not run: no such interpreter here")
    own = folder / f"{kind}-{python}"
    subprocess.run([found, "-m", "venv", "--clear", str(own)], check=True)
    own_python = str(own / ("Scripts" if os.name == "nt" else "bin") / "python")
    pip = [own_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [*requirements(kind), *TESTED_BY]
    print(f"scripts/test_versions: {kind} on Python {python}", file=sys.stderr)
    for step in (["--only-binary=:all:", *wanted], ["--no-deps", "-e", str(ROOT)]):
        done = subprocess.run([*pip, *step], capture_output=True, text=True, check=False)
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1]
            return Environment(kind, python, f"failed to install: {why}", has_run=True)
    said = tested(own_python, own, part)
    return Environment(
        kind, python, said, True, versions_of(own_python), time.perf_counter() - started
    )


def tested(python: str, folder: Path, part: int) -> str:
    """The summary of the core tests."""
    drawn = [f"--core-part={part}", f"--core-seed={SEED}", "-m", MARKERS]
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    arguments = ["-p", "scripts._versions.core_tests", *drawn, *core_files()]
    return summary(python, arguments, os.environ | variables | compiled)


def summary(python: str, arguments: Sequence[str], variables: Mapping[str, str]) -> str:
    """The last line of pytest; what failed goes to stderr."""
    command = [python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-2000:], file=sys.stderr)
    if done.returncode not in (0, 1):
        return f"failed: pytest ended with {done.returncode}"
    return done.stdout.strip().splitlines()[-1].partition(" in ")[0]


def versions_of(python: str) -> tuple[str, ...]:
    """Name and version of each declared dependency there."""
    names = [re.split(r"[<>=]", text)[0] for text in dependencies()]
    code = f"from importlib.metadata import version as v\nfor n in {names!r}: print(n, v(n))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return tuple(done.stdout.splitlines())


def table(found: list[Environment]) -> str:
    """Markdown: a row per environment, then the versions in each kind of environment."""
    lines = [head("environment", "Python", "core tests", "wall s")]
    lines += [line(e.kind, e.python, e.said, f"{e.wall_s:.0f}") for e in found]
    for kind in dict.fromkeys(e.kind for e in found):
        versions = next((e.versions for e in found if e.kind == kind and e.versions), ())
        lines.append(f"\n{kind}: {', '.join(versions) or 'nothing was installed'}.")
    return "\n".join([*lines, f"\n{platform.machine()}, {platform.system()}."])
