"""PyTorch's and NVIDIA's own test files against onnxq, with their imports redirected.

    scripts/torch_tests.py --folder FOLDER                    # all that the folder has
    scripts/torch_tests.py --folder FOLDER --suite fuse -v    # one file, with tracebacks
    scripts/torch_tests.py                                    # says which files it wants

FOLDER holds test files under the paths of their repositories: those of pytorch/pytorch (test/...)
and of NVIDIA/TensorRT (of tools/pytorch-quantization: tests/... and pytorch_quantization/...).
Nothing is fetched, and no such file is kept here. `torch.ao.quantization` in them becomes
onnxq.pytorch.quantization, `torch.ao.nn` onnxq.pytorch.nn; pytorch_quantization's descriptor,
functions, quantizer and calibrators become onnxq.pytorch.tensor_quant. NVIDIA's files want
absl-py installed, PyTorch's expecttest and hypothesis; a file that cannot be imported says why.

A test passes, fails (with its cause), or is not applicable: it uses a name that onnxq does not
have, or what the table below it names. What it printed is in scripts/torch_tests.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts import _tables
from scripts._torch_tests.outcomes import Kind, Outcome, read
from scripts._torch_tests.suites import SUITES, Suite, written

PACKAGES = ("torch", "numpy")


def main() -> int:
    """Runs the files that the folder has; its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="holds the test files, under their own paths")
    parser.add_argument("--suite", help="those whose name contains this")
    parser.add_argument("-k", dest="only", help="as pytest's -k")
    parser.add_argument("-v", dest="verbose", action="store_true", help="show tracebacks")
    parser.add_argument("--output", type=Path, help="write the page there, too")
    asked = parser.parse_args()
    if asked.folder is None:
        print("Files that --folder is to hold, under these paths:")
        print("\n".join(f"  {suite.path}   ({suite.repository})" for suite in SUITES))
        return 2
    outcomes = {}
    for suite in SUITES:
        if asked.suite is not None and asked.suite not in suite.path:
            continue
        if not (asked.folder / suite.path).exists():
            print(f"{suite.path}: not in {asked.folder}", file=sys.stderr)
            continue
        outcomes[suite] = run(suite, asked.folder, asked.only, asked.verbose)
    _tables.publish(page(outcomes), asked.output)
    return 0


def run(suite: Suite, folder: Path, only: str | None, verbose: object) -> list[Outcome]:
    """Outcomes of the tests of one file, in its own process."""
    with tempfile.TemporaryDirectory() as temporary:
        there = Path(temporary)
        path = written(suite, folder, there)
        report = there / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-p", "scripts._torch_tests.plugin"),
            *("-c", os.devnull, "--rootdir", str(there), f"--junitxml={report}", str(path)),
            *("-q", "-rN", "-p", "no:cacheprovider", "--import-mode=importlib"),
            *(("-k", only) if only else ()),
            *("-o", f"python_functions={suite.functions}"),
            "--tb=long" if verbose else "--tb=short",
        ]
        here = Path(__file__).resolve().parent.parent
        paths = (str(here), str(there), os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTORCH_HYPOTHESIS_PROFILE": "pytorch_ci",  # the same examples in every run
        }
        ended = subprocess.run(
            command, cwd=there, env=environment, capture_output=True, text=True, check=False
        )
        if verbose or not report.exists():
            print(ended.stdout, ended.stderr, file=sys.stderr)
        return read(report, suite)


def page(outcomes: dict[Suite, list[Outcome]]) -> list[str]:
    """The page: counts of each file, then what failed, then what does not apply."""
    lines = [
        "# PyTorch's and NVIDIA's own tests",
        "",
        f"Printed by `scripts/torch_tests.py`, with {_tables.versions(*PACKAGES)}.",
        "",
        _tables.head("file", "pass", "fail", "not applicable"),
    ]
    for suite, found in outcomes.items():
        kinds = Counter(each.kind for each in found)
        lines.append(_tables.line(suite.path, *(kinds[kind] for kind in Kind)))
    total = Counter(each.kind for found in outcomes.values() for each in found)
    lines.append(_tables.line("all", *(total[kind] for kind in Kind)))
    for kind, title in ((Kind.FAIL, "Failures"), (Kind.OTHER, "Not applicable")):
        lines += ["", f"## {title}", "", _tables.head("test", "cause")]
        for suite, found in outcomes.items():
            lines += [
                _tables.line(f"{Path(suite.path).stem} {each.name}", _tables.escaped(each.cause))
                for each in found
                if each.kind is kind
            ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
