"""Target of each instruction set: what it computes exactly, and what is fast there.

    x86-sse      SSE2                     exact products; sums without fused multiply-adds
    x86-avx2     AVX2                     two u8*s8 products are summed in int16 and SATURATE
    x86-avx512   AVX512BW without VNNI    as x86-avx2
    x86-avxvnni  AVX-VNNI                 exact
    x86-vnni     AVX512-VNNI              exact
    arm64        NEON                     two (-128)*(-128) products WRAP in int16, in any layer
    arm64-dot    NEON with dot product    as arm64, in depthwise convolutions only
    arm64-i8mm   NEON with i8mm           as arm64-dot
    wasm         WebAssembly's SIMD       exact products; sums and products of integers divided
    portable     all of the above: the bounds that are exact everywhere (the default)
    auto         whichever of them this machine is (see `detect`)

`fbgemm` is x86-avx2 and `qnnpack` is arm64, PyTorch's names of backends.

ONNX Runtime 1.31 was compared with exact integer arithmetic on each of them, on silicon, in qemu,
or with CPUID bits hidden: docs/why/numerics.md has what was found.

WebAssembly is onnxruntime-web 1.30 in Node and in Chromium (tests/wasm), one build for all
machines, whose sums of products are exact.
"""

from onnxq.errors import QConfigError, kind_of, nearest
from onnxq.targets.accumulation import SaturationMode
from onnxq.targets.detection import this_machine
from onnxq.targets.target import DIVIDED_PAIRS, FIXED_POINT, UNFUSED_SUMS, Proof, Target, Throughput

_MASKED = "Zen 5, other instruction sets hidden by a masked CPUID; MatMulInteger 256x1024x1024"

_TARGETS = (
    Target(
        "portable",
        "exact on every instruction set below",
        64,
        saturation_mode=SaturationMode.SATURATES,
        measurement="the intersection of the others",
        agreeing_sums=True,
    ),
    Target(
        "x86-sse",
        "x86-64 without AVX2; Linux builds of ONNX Runtime (Windows builds: use portable)",
        127,
        saturation_mode=SaturationMode.UNFUSED,
        measurement="qemu (Sandy Bridge)",
        throughput=Throughput(40, 41, 23, 24, _MASKED),
        agreeing_sums=True,
        caveat=UNFUSED_SUMS,
    ),
    Target(
        "x86-avx2",
        "Haswell to Coffee Lake, Zen 1 to 3",
        64,
        saturation_mode=SaturationMode.SATURATES,
        measurement="qemu (Haswell)",
        throughput=Throughput(125, 99, 22, 60, _MASKED),
    ),
    Target(
        "x86-avx512",
        "AVX512BW without VNNI: Skylake-X, Skylake-SP",
        64,
        saturation_mode=SaturationMode.SATURATES,
        proof=Proof.PREDICTED,
        measurement="the pairs of x86-avx2; measured once, VNNI hidden by a masked CPUID",
        throughput=Throughput(241, 196, 23, 110, _MASKED),
    ),
    Target(
        "x86-avxvnni",
        "AVX-VNNI: Alder Lake and later desktops",
        127,
        proof=Proof.PREDICTED,
        measurement="measured once, AVX512 hidden by a masked CPUID",
        throughput=Throughput(252, 100, 22, 60, _MASKED),
    ),
    Target(
        "x86-vnni",
        "AVX512-VNNI: Cascade Lake, Ice Lake, Zen 4 and later",
        127,
        measurement="silicon (Zen 5)",
        throughput=Throughput(474, 192, 23, 113, "Zen 5; MatMulInteger 256x1024x1024"),
    ),
    Target(
        "arm64",
        "NEON only: Cortex-A53, A72; Raspberry Pi 4",
        127,
        saturation_mode=SaturationMode.WRAPS,
        measurement="qemu (Cortex-A53 and A57)",
        agreeing_sums=True,
        int8_activations=True,
        caveat=FIXED_POINT,
    ),
    Target(
        "arm64-dot",
        "dot product: Cortex-A76, Neoverse N1, Apple M1",
        127,
        saturation_mode=SaturationMode.WRAPS_DEPTHWISE,
        measurement="qemu (Cortex-A76)",
        agreeing_sums=True,
        int8_activations=True,
        caveat=FIXED_POINT,
    ),
    Target(
        "arm64-i8mm",
        "8-bit matrix multiply: Neoverse V1 and N2, Cortex-A710, Apple M2",
        127,
        saturation_mode=SaturationMode.WRAPS_DEPTHWISE,
        measurement="qemu (-cpu max, with and without SVE)",
        agreeing_sums=True,
        int8_activations=True,
        caveat=FIXED_POINT,
    ),
    Target(
        "wasm",
        "WebAssembly: browsers and Node, by onnxruntime-web",
        127,
        saturation_mode=SaturationMode.DIVIDES,
        measurement="onnxruntime-web 1.30 in Node and in Chromium",
        agreeing_sums=True,
        caveat=DIVIDED_PAIRS,
    ),
)
_BY_NAME = {target.name: target for target in _TARGETS}
BACKENDS = {"fbgemm": "x86-avx2", "qnnpack": "arm64"}
"""PyTorch's names of backends -> target."""

AUTO = "auto"

_default = _BY_NAME["portable"]


def all_targets() -> tuple[Target, ...]:
    """Every target, `portable` first."""
    return _TARGETS


def aliases() -> dict[str, str]:
    """Other names that `find` knows: alias -> name; `auto` gives this machine's."""
    return {**BACKENDS, AUTO: detect().name}


def find(name: str) -> Target:
    """The target of that name or alias; `auto` is this machine's.

    Raises:
        QConfigError: no target has that name.
    """
    if name == AUTO:
        return detect()
    known = BACKENDS.get(name, name)
    if known not in _BY_NAME:
        names = [*_BY_NAME, AUTO, *BACKENDS]
        raise QConfigError(
            f"target '{name}' is not known; known: {', '.join(names)}.{nearest(name, names)}"
        )
    return _BY_NAME[known]


def resolve(target: str | Target | None) -> Target:
    """The target itself, the one of that name, or for None the default.

    Raises:
        QConfigError: no target has that name, or it is neither a name nor a Target.
    """
    return get_default() if target is None else _as_target(target)


def get_default() -> Target:
    """The target of models for which none is named: `portable` until `set_default`."""
    return _default


def set_default(target: str | Target) -> Target:
    """Makes it the default and returns it; stands for torch.backends.quantized.engine.

    Raises:
        QConfigError: no target has that name, or it is neither a name nor a Target.
    """
    global _default
    _default = _as_target(target)
    return _default


def _as_target(target: object) -> Target:
    if isinstance(target, Target):
        return target
    if isinstance(target, str):
        return find(target)
    raise QConfigError(
        f"target is {kind_of(target)} ({target!r}); wanted a name that `onnxq targets` "
        "lists, such as 'portable', or an onnxq.targets.Target."
    )


def detect() -> Target:
    """This machine's target, never one whose results would be wrong here.

    Linux says what it has in /proc/cpuinfo, elsewhere the package py-cpuinfo does, where it is
    installed. Else only the architecture is known: x86 counts as x86-avx2 (whose weights every x86
    computes exactly), Apple's ARM as arm64-dot, which all of it has, other ARM as arm64. Others are
    `portable`.
    """
    return _BY_NAME[this_machine()]
