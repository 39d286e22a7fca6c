"""Targets: what each instruction set runs exactly, and what is fast there.

The table is in onnxq.targets.machines, which says where its numbers come from.
"""

from onnxq.targets.machines import (
    AUTO,
    BACKENDS,
    aliases,
    all_targets,
    detect,
    find,
    get_default,
    resolve,
    set_default,
)
from onnxq.targets.speedups import DYNAMIC_SPEEDUPS, DynamicSpeedup
from onnxq.targets.target import (
    AS_FAST,
    FIXED_POINT,
    SLOW_IN_INTEGERS,
    UNFUSED_SUMS,
    UNPROVEN,
    Proof,
    Target,
    Throughput,
    TypePair,
)

__all__ = [
    "AS_FAST",
    "AUTO",
    "BACKENDS",
    "DYNAMIC_SPEEDUPS",
    "FIXED_POINT",
    "SLOW_IN_INTEGERS",
    "UNFUSED_SUMS",
    "UNPROVEN",
    "DynamicSpeedup",
    "Proof",
    "Target",
    "Throughput",
    "TypePair",
    "aliases",
    "all_targets",
    "detect",
    "find",
    "get_default",
    "resolve",
    "set_default",
]
