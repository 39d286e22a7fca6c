"""Which of the targets this machine is, as far as it says."""

import functools
import importlib
import platform
from pathlib import Path

LINUX_NAMES = {"avx512vnni": "avx512_vnni", "avxvnni": "avx_vnni"}
"""Names that py-cpuinfo gives to flags, where Linux has others."""


def this_machine() -> str:
    """Name of this machine's target, never of one whose results would be wrong here."""
    return classify(platform.system(), platform.machine(), _cpuinfo())


def flags_here() -> set[str]:
    """Flags of this machine's processor, as Linux names them; empty: not told."""
    text = _cpuinfo()
    return _flags(text, "flags") or _flags(text, "features")


def _cpuinfo() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else asked()


@functools.cache
def asked() -> str:
    """Flags in the form of /proc/cpuinfo, from the package py-cpuinfo; empty where it is not.

    That takes about a second: it runs other programs, or the instruction CPUID.
    """
    try:
        module = importlib.import_module("cpuinfo")
    except ImportError:
        return ""
    found = module.get_cpu_info().get("flags", [])
    return f"flags: {' '.join(LINUX_NAMES.get(flag, flag) for flag in found)}" if found else ""


def classify(system: str, machine: str, cpuinfo: str) -> str:
    """The target for what platform.system() and machine() say, and the text of /proc/cpuinfo."""
    architecture = machine.lower()
    if architecture in {"x86_64", "amd64"}:
        name = _x86(_flags(cpuinfo, "flags"))
        # ONNX Runtime's builds for Windows saturate there, see docs/guides/targets.md
        return "portable" if (name, system) == ("x86-sse", "Windows") else name
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
