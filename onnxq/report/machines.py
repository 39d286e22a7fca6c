"""What a plan means for other machines, in sentences and rows: one wording for text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.graph.kernels import ROUNDING_OPS
from onnxq.range_reduction import RangeReduction

if TYPE_CHECKING:
    from onnxq.stages.findings import Execution
    from onnxq.stages.plan import Plan


def float_op_types(execution: Execution) -> dict[str, int]:
    """Op type -> nodes that compute in float, whose last bits may differ between machines."""
    counts = dict(execution.float_nodes)
    for op, count in execution.integer_nodes.items():
        if op in ROUNDING_OPS:
            counts[op] = counts.get(op, 0) + count
    return counts


def on_other_machines(made: Plan, execution: Execution) -> list[str]:
    """What is promised of results on other machines than this one, and what is not."""
    target = targets.find(made.target)
    notes = []
    if made.range_reduction is RangeReduction.OBSERVED and target.reduces_range:
        notes.append(
            "range reduction 'observed': no pair of products leaves int16 on the samples; on other "
            "inputs integers may differ on x86 without VNNI. 'worst-case' is exact for any input"
        )
    floats = float_op_types(execution)
    if floats:
        named = ", ".join(f"{op} ({count})" for op, count in floats.items())
        notes.append(
            f"{sum(floats.values())} node(s) compute in float: {named}. Their last bits may differ "
            "between machines, and codes computed from them by a step"
        )
    return notes


def reduced_rows(made: Plan) -> list[tuple[str, str, str, str]]:
    """(node, channels that gave up range, largest factor of a scale, mean) of each that did."""
    return [
        (name, f"{r.channels} of {r.of}", f"x {r.largest:.3f}", f"x {r.mean:.3f}")
        for name, r in made.reductions.items()
    ]
