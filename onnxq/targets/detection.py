"""Which of the targets this machine is, as far as it says without running other programs."""

from __future__ import annotations

import platform
from pathlib import Path


def this_machine() -> str:
    """Name of this machine's target, never of one whose results would be wrong here."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    return classify(platform.system(), platform.machine(), text)


def classify(system: str, machine: str, cpuinfo: str) -> str:
    """The target for what platform.system() and machine() say, and the text of /proc/cpuinfo."""
    architecture = machine.lower()
    if architecture in {"x86_64", "amd64"}:
        return _x86(_flags(cpuinfo, "flags"))
    if architecture in {"arm64", "aarch64"}:
        fallback = {"asimddp"} if system == "Darwin" else set[str]()
        return _arm(_flags(cpuinfo, "features") or fallback)
    return "portable"


def _flags(cpuinfo: str, key: str) -> set[str]:
    """Flags that every core has: the slow cores of a phone may lack what the fast ones have."""
    per_core = [
        set(values.split())
        for label, _, values in (line.partition(":") for line in cpuinfo.splitlines())
        if label.strip().lower() == key
    ]
    return set.intersection(*per_core) if per_core else set()


def _x86(flags: set[str]) -> str:
    if flags >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
        return "x86-vnni" if "avx512_vnni" in flags else "x86-avx512"
    if "avx_vnni" in flags:
        return "x86-avxvnni"
    # nothing known: the bounds of AVX2 suit every x86
    return "x86-avx2" if "avx2" in flags or not flags else "x86-sse"


def _arm(flags: set[str]) -> str:
    if "i8mm" in flags:
        return "arm64-i8mm"
    return "arm64-dot" if "asimddp" in flags else "arm64"
