"""Sentences and rows on other machines than this one: one wording for text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.ort.node_kinds import PRODUCT_OF_BLOCKS, rounding
from onnxq.targets.reduce_range import ReduceRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.checking.findings import Execution
    from onnxq.static.plan import Plan


OWN_BLOCKS = (
    "MatMulNBits with int8 activations cuts them into blocks of the machine's own: its results may "
    "differ by 3 % of the largest"
)


def on_other_machines(made: Plan, execution: Execution) -> list[str]:
    """Promises on results on other machines than this one, and what is not promised."""
    target = targets.find(made.target)
    notes = []
    if made.reduce_range is ReduceRange.OBSERVED and target.reduces_range:
        notes.append(
            "reduced range 'observed': no pair of products leaves int16 on the samples; on other "
            "inputs integers may differ on x86 without VNNI. 'worst-case' is exact for any input"
        )
    kinds = {
        "compute in float": rounding(execution.float_nodes, {}),
        "sum integers and scale them to float32": rounding({}, execution.integer_nodes),
    }
    if told := [_told(nodes, what) for what, nodes in kinds.items() if nodes]:
        notes.append(
            f"{'; '.join(told)}. Their last bits may differ between machines, and integers made of "
            "them by one LSB"
        )
    if PRODUCT_OF_BLOCKS in execution.integer_nodes:
        notes.append(OWN_BLOCKS)
    return notes


def _told(nodes: Mapping[str, int], what: str) -> str:
    """How many nodes do it, and which, the most frequent first."""
    in_order = sorted(nodes.items(), key=lambda item: -item[1])
    named = ", ".join(f"{op} ({count})" for op, count in in_order)
    return f"{sum(nodes.values())} node(s) {what}: {named}"


def reduced_rows(made: Plan) -> list[tuple[str, str, str, str]]:
    """(node, channels that gave up range, largest factor of a scale, mean) of each that did."""
    return [
        (name, f"{r.channels} of {r.of}", f"x {r.largest:.3f}", f"x {r.mean:.3f}")
        for name, r in made.reductions.items()
    ]


def reduced_in_a_line(made: Plan) -> list[str]:
    """One note on weights that gave up range; empty where none did."""
    if not made.reductions:
        return []
    name, most = max(made.reductions.items(), key=lambda item: item[1].largest)
    channels = sum(r.channels for r in made.reductions.values())
    return [
        f"{channels} channels of weights in {len(made.reductions)} node(s) gave up range, so that "
        f"pairs of products fit ({made.reduce_range}): steps up to {most.largest:.2f} times as "
        f"wide, in '{name}'; -v lists them"
    ]
