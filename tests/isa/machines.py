"""The machines that scripts/setup_isa unpacks: what they stand for, and how a model is run on one.

A machine runs a folder of cases in one process, since its Python takes seconds to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq import targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.operator import Array
    from onnxq.targets.accumulation import SaturationMode

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_cases.py")
TIME_LIMIT_S = 1800
GRAPH = ".graph"
"""Suffix of an empty file beside a case that asks for the graph that runs."""
QUIET = {"ORT_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Machine:
    """An emulated machine.

    Attributes:
        name: of the prefix that scripts/setup_isa made; of x86, of the instruction set.
        target: the name of the Target it stands for.
        cpu: what qemu is told of an x86 machine; empty: an ARM one, whose prefix says it.
    """

    name: str
    target: str
    cpu: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def saturation_mode(self) -> SaturationMode:
        """How it adds products of integers, as its Target says."""
        return targets.find(self.target).saturation_mode

    def command(self, folder: Path) -> list[str]:
        """Words of the command that runs cases there; folders of cases and results go behind."""
        if self.cpu:
            return [str(folder / "bin/qemu-x86_64"), "-cpu", self.cpu, sys.executable, str(RUNNER)]
        return [str(folder / "bin/python-arm"), str(RUNNER)]


MACHINES = (
    Machine("sse", "x86-sse", "SandyBridge"),
    Machine("avx2", "x86-avx2", "Haswell"),
    Machine("neon", "arm64"),
    Machine("neon53", "arm64"),
    Machine("dot", "arm64-dot"),
    Machine("i8mm", "arm64-i8mm"),
    Machine("sve", "arm64-i8mm"),
)
BY_MACHINE = [pytest.param(machine, id=machine.name) for machine in MACHINES]


@dataclass(frozen=True, slots=True)
class Results:
    """Files that a machine wrote.

    Attributes:
        folder: with one file per case.
        machine: that ran them.
    """

    folder: Path
    machine: Machine

    def outputs(self, case: str) -> list[Array]:
        """Arrays that one case gave.

        Raises:
            AssertionError: ONNX Runtime refused it there, or the process ended before it.
        """
        error = self.folder / f"{case}.error"
        assert not error.exists(), f"{case} on {self.machine}: {error.read_text()}"
        path = self.folder / f"{case}.npz"
        assert path.exists(), f"{case} did not run on {self.machine}: its process ended before"
        with np.load(path) as file:
            return [file[f"arr_{i}"] for i in range(len(file.files))]

    def graph(self, case: str) -> ir.Model:
        """The graph that ONNX Runtime runs there, of a case that was saved with its GRAPH."""
        self.outputs(case)
        return ir.load(self.folder / f"{case}.onnx")


def unpacked() -> Path | None:
    """Where scripts/setup_isa put them; None: nowhere."""
    folder = Path(os.environ.get("ONNXQ_ISA") or ROOT / ".cache" / "isa")
    return folder if (folder / "stamp").is_file() else None


def save_case(folder: Path, name: str, model: bytes, inputs: Mapping[str, Array]) -> None:
    """Writes one case for `run`."""
    (folder / f"{name}.onnx").write_bytes(model)
    np.savez(folder / f"{name}.npz", **{key: np.asarray(x) for key, x in inputs.items()})  # type: ignore[arg-type]  # numpy's allow_pickle


def run(machine: Machine, emulators: Path, cases: Path, results: Path) -> Results:
    """Runs every case of a folder on a machine, in one process.

    Raises:
        AssertionError: the process failed, as far as it is not the fault of a case.
    """
    results.mkdir()
    done = subprocess.run(
        [*machine.command(emulators), str(cases), str(results)],
        env={**os.environ, **QUIET, "ARM_ISA": machine.name},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (
        f"{machine}: exit {done.returncode} after {len(list(results.iterdir()))} of "
        f"{len(list(cases.glob('*.onnx')))} cases.\n{done.stderr[-2000:]}"
    )
    return Results(results, machine)
