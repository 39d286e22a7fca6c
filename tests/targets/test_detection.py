from __future__ import annotations

import sys
import types

import pytest

from onnxq.targets import detection

AVX512 = "avx2 avx512f avx512bw avx512dq avx512vl"


def cpuinfo(label: str, *cores: str) -> str:
    return "".join(f"processor\t: {i}\n{label}\t: {flags}\n\n" for i, flags in enumerate(cores))


@pytest.mark.parametrize(
    ("system", "machine", "text", "name"),
    [
        ("Linux", "x86_64", cpuinfo("flags", f"{AVX512} avx512_vnni avx_vnni"), "x86-vnni"),
        ("Linux", "x86_64", cpuinfo("flags", AVX512), "x86-avx512"),
        ("Linux", "x86_64", cpuinfo("flags", "avx avx2 avx_vnni"), "x86-avxvnni"),
        ("Linux", "x86_64", cpuinfo("flags", "avx avx2"), "x86-avx2"),
        ("Linux", "x86_64", cpuinfo("flags", "avx512f avx2"), "x86-avx2"),
        ("Linux", "x86_64", cpuinfo("flags", "sse4_2 avx"), "x86-sse"),
        ("Linux", "x86_64", cpuinfo("flags", "avx2 avx_vnni", "avx2"), "x86-avx2"),
        ("Linux", "x86_64", "", "x86-avx2"),
        ("Linux", "aarch64", cpuinfo("Features", "fp asimd"), "arm64"),
        ("Linux", "aarch64", cpuinfo("Features", "asimd asimddp"), "arm64-dot"),
        ("Linux", "aarch64", cpuinfo("Features", "asimd asimddp i8mm"), "arm64-i8mm"),
        ("Linux", "aarch64", cpuinfo("Features", "asimd asimddp", "asimd"), "arm64"),
        ("Windows", "AMD64", cpuinfo("flags", "avx2"), "x86-avx2"),
        ("Windows", "AMD64", cpuinfo("flags", "sse4_2 avx"), "portable"),
        ("Darwin", "arm64", "", "arm64-dot"),
        ("Darwin", "x86_64", "", "x86-avx2"),
        ("Windows", "AMD64", "", "x86-avx2"),
        ("Windows", "ARM64", "", "arm64"),
        ("Linux", "riscv64", "", "portable"),
    ],
)
def test_a_machine_is_classified(system: str, machine: str, text: str, name: str) -> None:
    assert detection.classify(system, machine, text) == name


def test_py_cpuinfo_is_asked_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"]
    module = types.SimpleNamespace(get_cpu_info=lambda: {"flags": flags})
    monkeypatch.setitem(sys.modules, "cpuinfo", module)
    text = detection.asked.__wrapped__()
    assert detection.classify("Windows", "AMD64", text) == "x86-vnni"


def test_without_py_cpuinfo_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cpuinfo", None)
    assert detection.asked.__wrapped__() == ""
    module = types.SimpleNamespace(get_cpu_info=dict)
    monkeypatch.setitem(sys.modules, "cpuinfo", module)
    assert detection.asked.__wrapped__() == ""
