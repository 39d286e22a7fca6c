"""Machine and versions that sums hold for: each of them may change a last bit."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

FLAGS = ("avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm", "sve")
"""Instruction sets that ONNX Runtime, torch and NumPy choose their kernels by."""
PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "torch")


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine and versions that a list of sums holds for.

    Attributes:
        cpu: its model's name.
        flags: those of FLAGS that it has, with blanks between.
        cores: logical ones: ONNX Runtime takes a thread for each.
        versions: of PACKAGES, "numpy 2.3.0, onnx 1.19.0, ...".
    """

    cpu: str
    flags: str
    cores: int
    versions: str

    def unlike(self, other: Machine) -> list[str]:
        """A line per fact in which the other one differs: "cpu: A, not B"."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{key}: {mine[key]}, not {theirs[key]}" for key in mine if mine[key] != theirs[key]
        ]


def this_machine() -> Machine:
    """The machine that runs this, and the packages that it imports."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    facts = {key.strip(): value for key, _, value in (x.partition(":") for x in text.splitlines())}
    has = set(facts.get("flags", facts.get("Features", "")).split())
    return Machine(
        cpu=facts.get("model name", platform.processor() or platform.machine()).strip(),
        flags=" ".join(flag for flag in FLAGS if flag in has),
        cores=os.cpu_count() or 0,
        versions=", ".join(f"{name} {version(name)}" for name in PACKAGES),
    )
