"""What each instruction set computes exactly, and what is fast there: a Target each.

    x86-sse      SSE2                     exact
    x86-avx2     AVX2                     two u8*s8 products are summed in int16 and SATURATE
    x86-avx512   AVX512BW without VNNI    as x86-avx2
    x86-avxvnni  AVX-VNNI                 exact
    x86-vnni     AVX512-VNNI              exact
    arm64        NEON                     two (-128)*(-128) products WRAP in int16, in any layer
    arm64-dot    NEON with dot product    as arm64, in depthwise convolutions only
    arm64-i8mm   NEON with i8mm           as arm64-dot
    portable     all of the above: the bounds that are exact everywhere (the default)
    auto         whichever of them this machine is (see `detect`)

`fbgemm` is x86-avx2 and `qnnpack` is arm64, PyTorch's names of backends.

Where the numbers come from: ONNX Runtime 1.31 ran 107 cases of its integer operators and 471 stress
shapes on each instruction set (silicon, qemu, or CPUID bits hidden from it), and was compared
bit for bit with exact integer arithmetic.

    Saturation: vpmaddubsw adds two neighbouring products of u8 by s8 in int16. With weights of the
    full range 314 of the 471 shapes were wrong, and ResNet-20's logits by up to 0.6 of 4.8. Weights
    in [-64, 64] never saturate, since 255 * 64 * 2 = 32640 is below 2^15; measured: no difference.
    Depthwise convolutions do not use that instruction.

    Wrap: 2 * (-128 * -128) = 2^15. u8 activations are flipped to s8, so the code 0 counts as -128.
    Weights in [-127, 127] never wrap; no weight of -128 is emitted, whatever the target.

    Speed on x86 in GMAC/s, with VNNI: uint8 by int8 474, uint8 by uint8 192, int8 by int8 23.

Which operators are slow in integers was measured on AVX512-VNNI by scripts/bench_elementwise.py;
what it printed is in scripts/bench_elementwise.txt. The other targets use the same numbers.
"""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.arithmetic import Arithmetic
from onnxq.dynamic_gains import PRODUCT_OPS, PRODUCTS, ROWS
from onnxq.errors import QConfigError, nearest
from onnxq.range_reduction import RangeReduction
from onnxq.recurrent_gains import GATES, RECURRENT, STEP_ROWS, STORED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.operator import Rule


TypePair = tuple[str, str]
"""Names of QDTypes: (activation, weight)."""

_PAIRS: tuple[TypePair, ...] = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))

# Printed by scripts/bench_elementwise.py (a test compares). Faster in integers were Add, Mul,
# Concat, Sigmoid, LeakyRelu, GlobalAveragePool, MaxPool, Transpose, DepthToSpace, and of what
# onnxq writes on codes Neg, Sub, Div, Pow, Tanh, HardSigmoid, PRelu, Elu, Selu, Celu, Softplus,
# Mish, Log, Sin, Cos, Sign; as fast was Abs.
SLOW_IN_INTEGERS: Mapping[str, float] = {
    "Softmax": 0.57,
    "AveragePool": 0.34,
    "Resize": 0.74,
    "Where": 0.09,
}


@dataclass(frozen=True, slots=True)
class DynamicGain:
    """How much faster a dynamically quantized node was than the float one, as measured.

    Attributes:
        op_type: of the float node.
        form: how it runs; a DynamicForm's value: "integer", "blocks", "stored", "half".
        bits: of the weight's codes.
        k: numbers that are summed per result; of an LSTM, GRU or RNN, the hidden size.
        n: results per row: columns of the weight.
        m: rows of the activation: batch times sequence.
        ratio: time in float / time so quantized, one thread; above 1, it gains.
    """

    op_type: str
    form: str
    bits: int
    k: int
    n: int
    m: int
    ratio: float


def _recurrent_gains() -> Iterator[DynamicGain]:
    for op_type, sizes in RECURRENT.items():
        for hidden, ratios in sizes.items():
            n = GATES[op_type] * hidden
            for m, ratio in zip(STEP_ROWS, ratios, strict=True):
                yield DynamicGain(op_type, "integer", 8, hidden, n, m, ratio)
                yield DynamicGain(op_type, "stored", 8, hidden, n, m, STORED)


DYNAMIC_GAINS: tuple[DynamicGain, ...] = (
    *(
        DynamicGain(op_type, form, bits, k, n, m, ratio)
        for op_type in PRODUCT_OPS
        for (form, bits), shapes in PRODUCTS.items()
        for (k, n), ratios in shapes.items()
        for m, ratio in zip(ROWS, ratios, strict=True)
    ),
    *_recurrent_gains(),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that quantized models run on.

    Attributes:
        name: as `find` knows it.
        description: instruction set and what is special, in one line.
        weight_qmax_saturating: largest magnitude of an int8 weight in operators whose products are
            summed in pairs in int16 (a rule's `saturating_pairs`): 64 or 127.
        weight_qmax: largest magnitude of int8 weights elsewhere: 127, never 128.
        arithmetic: what becomes of pairs of products that int16 does not hold.
        pairs: (activation, weight) types that QLinearConv and QLinearMatMul have kernels for.
        preferred: the fastest pair that is exact.
        slow_in_integers: op_type -> time in float / time in integers, inside an int8 network;
            `prepare` leaves these operators in float unless the qconfig names them.
        proven: whether results were compared bit for bit on this instruction set.
        evidence: how that was done.
    """

    name: str
    description: str
    weight_qmax_saturating: int
    weight_qmax: int = 127
    arithmetic: Arithmetic = Arithmetic.EXACT
    pairs: tuple[TypePair, ...] = _PAIRS
    preferred: TypePair = ("uint8", "int8")
    slow_in_integers: Mapping[str, float] = field(
        default_factory=lambda: SLOW_IN_INTEGERS, hash=False
    )
    proven: bool = True
    evidence: str = ""
    dynamic_gains: tuple[DynamicGain, ...] = field(default=DYNAMIC_GAINS, repr=False)
    range_reduction: RangeReduction = RangeReduction.WORST_CASE

    def __str__(self) -> str:
        return self.name

    @property
    def reduces_range(self) -> bool:
        """Whether products of full-range weights would saturate here."""
        return self.weight_qmax_saturating < self.weight_qmax

    def weight_limit(self, rule: Rule) -> int:
        """Largest magnitude of an int8 weight of an operator; pairs of them may be limited too."""
        everywhere = self.range_reduction is RangeReduction.EVERYWHERE
        return (
            self.weight_qmax_saturating
            if rule.saturating_pairs and everywhere
            else (self.weight_qmax)
        )

    def dynamic_gain(
        self, op_type: str, form: str, bits: int, k: int, n: int, m: int | None
    ) -> float | None:
        """Time in float / time dynamically quantized, of the nearest shape that was measured.

        Near is small in (log k/k')^2 + (log n/n')^2 + (log m/m')^2. Without m, the smallest ratio
        over the rows that were measured at the nearest k and n.

        Args:
            op_type: of the float node.
            form: a DynamicForm's value.
            bits: of the weight's codes.
            k: numbers that are summed per result, at least 1.
            n: results per row, at least 1.
            m: rows of the activation; None: not known before the model runs.

        Returns:
            None where that operator was not measured in this form.
        """
        measured = [
            g for g in self.dynamic_gains if (g.op_type, g.form, g.bits) == (op_type, form, bits)
        ]
        if not measured:
            return None

        def distance(gain: DynamicGain) -> float:
            rows = 0.0 if m is None else math.log(max(m, 1) / gain.m)
            return math.log(k / gain.k) ** 2 + math.log(n / gain.n) ** 2 + rows**2

        least = min(distance(g) for g in measured)
        return min(g.ratio for g in measured if distance(g) == least)


_TARGETS = (
    Target(
        "portable",
        "exact on every instruction set below",
        64,
        arithmetic=Arithmetic.SATURATES,
        evidence="the intersection of the others",
    ),
    Target(
        "x86-sse",
        "x86-64 without AVX; Linux builds of ONNX Runtime (Windows builds: use x86-avx2)",
        127,
        evidence="AVX hidden by a masked CPUID",
    ),
    Target(
        "x86-avx2",
        "Haswell to Coffee Lake, Zen 1 to 3",
        64,
        arithmetic=Arithmetic.SATURATES,
        evidence="qemu (Haswell) and masked CPUID agree",
    ),
    Target(
        "x86-avx512",
        "AVX512BW without VNNI: Skylake-X",
        64,
        arithmetic=Arithmetic.SATURATES,
        evidence="VNNI hidden by a masked CPUID",
    ),
    Target(
        "x86-avxvnni",
        "AVX-VNNI: Alder Lake and later desktops",
        127,
        evidence="AVX512 hidden by a masked CPUID",
    ),
    Target(
        "x86-vnni",
        "AVX512-VNNI: Cascade Lake, Ice Lake, Zen 4 and later",
        127,
        evidence="silicon (Zen 5)",
    ),
    Target(
        "arm64",
        "NEON only: Cortex-A53, A72; Raspberry Pi 4",
        127,
        arithmetic=Arithmetic.WRAPS,
        evidence="qemu (Cortex-A53 and A72)",
    ),
    Target(
        "arm64-dot",
        "dot product: Cortex-A76, Neoverse N1, Apple M1",
        127,
        arithmetic=Arithmetic.WRAPS_DEPTHWISE,
        evidence="qemu (Cortex-A76 and A55)",
    ),
    Target(
        "arm64-i8mm",
        "8-bit matrix multiply: Neoverse V1 and N2, Cortex-A710, Apple M2",
        127,
        arithmetic=Arithmetic.WRAPS_DEPTHWISE,
        evidence="qemu (Cortex-A710, Neoverse V1)",
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
        f"target is a {type(target).__name__} ({target!r}); wanted a name that `onnxq targets` "
        "lists, such as 'portable', or an onnxq.targets.Target."
    )


def detect() -> Target:
    """This machine's target, never one whose results would be wrong here.

    Linux says what it has in /proc/cpuinfo. Elsewhere only the architecture is known without
    running other programs: x86 counts as x86-avx2 (whose weights every x86 computes exactly),
    Apple's ARM as arm64-dot, which all of it has, other ARM as arm64. Others are `portable`.
    """
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    return _classify(platform.system(), platform.machine(), text)


def _classify(system: str, machine: str, cpuinfo: str) -> Target:
    """The target for what platform.system() and machine() say, and the text of /proc/cpuinfo."""
    architecture = machine.lower()
    if architecture in {"x86_64", "amd64"}:
        return _BY_NAME[_x86(_flags(cpuinfo, "flags"))]
    if architecture in {"arm64", "aarch64"}:
        fallback = {"asimddp"} if system == "Darwin" else set[str]()
        return _BY_NAME[_arm(_flags(cpuinfo, "features") or fallback)]
    return _BY_NAME["portable"]


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
