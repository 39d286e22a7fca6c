"""Environments of other tools, each with its own packages ahead of those of this one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts._foreign.makers import Batch

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "foreign"
MAKERS = Path(__file__).with_name("makers.py")
LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool on PyPI.

    Attributes:
        name: of its environment.
        packages: what pip installs; none: the tool is here already.
    """

    name: str
    packages: tuple[str, ...] = ()

    def python(self) -> Path:
        """The interpreter that has the tool; installed at the first use.

        Raises:
            ToolError: pip installs it not.
        """
        if not self.packages:
            return Path(sys.executable)
        folder, wanted = CACHE / self.name, " ".join(self.packages)
        stamp, python = folder / "stamp", folder / "bin" / "python"
        if stamp.is_file() and stamp.read_text() == wanted:
            return python
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True
        )
        (site,) = folder.glob("lib/python3.*/site-packages")
        (site / "onnxq-here.pth").write_text(sysconfig.get_paths()["purelib"])
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--no-compile",
            "--disable-pip-version-check",
        ]
        done = subprocess.run([*pip, *self.packages], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"pip install {wanted}: {last_line(done.stderr)}")
        stamp.write_text(wanted)
        return python

    def made(self, form: str, source: Path, batches: list[Batch]) -> Path:
        """The file in the form that the makers have under that name; made at the first use.

        Raises:
            ToolError: the tool is not here, or fails.
        """
        python = self.python()
        target = CACHE / self.name / "files" / f"{form} {source.stem}.onnx".replace(" ", "_")
        if not target.is_file():
            self._make(python, form, source, target, batches)
        return target

    def _make(
        self, python: Path, form: str, source: Path, target: Path, batches: list[Batch]
    ) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        data = target.with_suffix(".npz")
        np.savez(data, **{f"{i}/{n}": x for i, b in enumerate(batches) for n, x in b.items()})
        command = [str(python), str(MAKERS), form, str(source), str(target), str(data)]
        try:
            done = subprocess.run(
                command,
                cwd=target.parent,  # some leave files where they run
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"{form}: not done after {LIMIT_S} s") from error
        finally:
            data.unlink()
        if done.returncode:
            raise ToolError(f"{form}: {last_line(done.stderr)}")


class ToolError(Exception):
    """A tool is missing, or fails; the words are one line."""


def last_line(text: str) -> str:
    """The last line that says something."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no word"])[-1]


HERE = Tool("onnxruntime")
TOOLS = {
    tool.name: tool
    for tool in (
        HERE,
        Tool("torchao"),
        Tool("nncf", ("nncf==3.4.0",)),
        Tool("onnxsim", ("onnxsim==0.8.1",)),
        Tool("brevitas", ("brevitas==0.13.4", "onnxoptimizer==0.4.2")),
        Tool("modelopt", ("nvidia-modelopt[onnx]==0.47.0",)),
        Tool("converter", ("onnxconverter-common==1.16.0",)),
        Tool("olive", ("olive-ai==0.13.0", "requests==2.34.2")),
        Tool("quark", ("amd-quark==0.13",)),
        Tool("aimet", ("aimet-onnx==2.42.0",)),
        Tool("optimum", ("optimum-onnx==0.1.0",)),
    )
}
