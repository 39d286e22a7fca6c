"""onnxq on other versions of ONNX Runtime, and in other environments.

    scripts/test_versions                        # all
    scripts/test_versions --environments         # three versions of ONNX Runtime
    scripts/test_versions --versions --environments floors --pythons 3.11 --part 24

Each version of ONNX Runtime is unpacked into .cache/onnxruntime/VERSION, which goes ahead of the
environment's own packages: everything else stays the same. On each of them

    facts       tests/ort: what onnxq says of ONNX Runtime, and what plans rely on
    contract    the kernels against ONNX Runtime, operator by operator
    files       what the pinned version wrote is loaded, run, and each integer node compared with
                its kernel: golden graphs and trained models, in every form, for two targets

Environments are made anew, for each Python that is here: one with the lowest version of every
dependency, one with this environment's, one with the newest. There the core tests run, those that
need no torch; of these, the part that a seed draws.

The exit code is 1 where anything fails. scripts/test_versions.md has the tables that this printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._same_bytes.nets import GROUPS, make
from scripts._tables import head, line
from scripts._versions import environments
from scripts._versions.checked_files import Checked
from scripts._versions.environments import KINDS, PYTHONS, summary

VERSIONS = ("1.29.0", "1.30.0", "1.32.0")
"""Floor of pyproject.toml, one between, and the newest, which is to be raised with each release."""
NETS = (*GROUPS["golden"](), "resnet20", "mobilenetv2", "digits_gru", "digits_lstm")
PARTS = {
    "facts": ("tests/ort",),
    "contract": ("tests/operators/test_contract.py", "tests/operators/test_integer_contract.py"),
}
PART = 12
"""One core test of so many is run in each environment."""
ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "onnxruntime"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One version: the last line of each part, what became of the files, and how long it took."""

    version: str
    parts: dict[str, str]
    files: Checked
    wall_s: float

    @property
    def is_green(self) -> bool:
        """Whether nothing failed."""
        return self.files.is_good and not any("failed" in said for said in self.parts.values())


def unpacked(version: str) -> Path:
    """The folder with that version of the onnxruntime package; fetched if it is not there."""
    folder = CACHE / version
    if not (folder / "onnxruntime").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        print(f"scripts/test_versions: fetching onnxruntime {version}", file=sys.stderr)
        part = ["--no-deps", "--only-binary=:all:", "--target", str(folder)]
        subprocess.run([*pip, *part, f"onnxruntime=={version}"], check=True)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables under which Python finds this onnxruntime first, then this repository."""
    return os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def checked(files: Path, folder: Path) -> Checked:
    """Totals of the files on that version."""
    command = [sys.executable, "-m", "scripts._versions.checked_files", str(files)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(folder), stdout=subprocess.PIPE, text=True, check=True
    )
    return Checked(**json.loads(done.stdout.splitlines()[-1]))


def run(version: str, files: Path) -> Outcome:
    """Everything, on one version."""
    folder, started = unpacked(version), time.perf_counter()
    variables = environment(folder)
    parts = {name: summary(sys.executable, tests, variables) for name, tests in PARTS.items()}
    found = checked(files, folder)
    return Outcome(version, parts, found, time.perf_counter() - started)


def table(outcomes: list[Outcome]) -> str:
    """Markdown, a row per version."""
    names = ("onnxruntime", *PARTS, "files that run", "integers", "of them differing", "wall s")
    lines = [head(*names)]
    for one in outcomes:
        runs = f"{one.files.files - len(one.files.refused)} of {one.files.files}"
        numbers = (f"{one.files.integers:,}", one.files.differing, f"{one.wall_s:.0f}")
        lines.append(line(one.version, *one.parts.values(), runs, *numbers))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versions", nargs="*", default=VERSIONS, metavar="X.Y.Z")
    parser.add_argument("--environments", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, metavar="X.Y")
    parser.add_argument("--part", type=int, default=PART, help="one core test of so many is run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnxq-versions-") as name:
        files = Path(name)
        for net in NETS if args.versions else ():
            (files / net).mkdir()
            make(net, files / net)
        outcomes = [run(version, files) for version in args.versions]
        made = [
            environments.run(kind, python, files, args.part)
            for kind in args.environments
            for python in args.pythons
        ]
    if outcomes:
        print(table(outcomes))
    if made:
        print(environments.table(made))
    for one in outcomes:
        for problem in one.files.problems:
            print(f"{one.version}: {problem}")
    green = [one.is_green for one in outcomes] + [one.is_green for one in made]
    return 0 if all(green) else 1


if __name__ == "__main__":
    sys.exit(main())
