"""Tables of cross_check's findings for people. Renders values; computes nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table
from onnxq.targets import find
from onnxq.targets.accumulation import SaturationMode

if TYPE_CHECKING:
    from rich.console import Console

    from onnxq.checking.cross_findings import CrossFindings, NodeFinding, OutputAgreement

_VERBS = {
    SaturationMode.SATURATES: "saturate",
    SaturationMode.WRAPS: "wrap or round otherwise",
    SaturationMode.WRAPS_DEPTHWISE: "wrap or round otherwise",
}
"""Effect of a machine's arithmetic on sums, where it is not rounding alone."""


def print_cross_findings(console: Console, findings: CrossFindings) -> None:
    """Integer nodes, what was not checked, outputs end to end, and a sum."""
    _print_nodes(console, findings.nodes)
    if findings.unchecked:
        missing = [(u.name, u.op_type, u.reason.words) for u in findings.unchecked]
        print_table(console, "integer nodes that were not checked", ("node", "op", "why"), missing)
    if findings.floats:
        counts = Counter(node.op_type for node in findings.floats)
        others = [(op_type, str(count)) for op_type, count in counts.most_common()]
        title = "nodes on floats, shapes and conditions, which are not compared"
        print_table(console, title, ("op", "nodes"), others, numbers=(1,))
    _print_end_to_end(console, findings)
    for name in findings.instrumented:
        console.print(f"output '{name}' changes when inner tensors are read: nothing can be said")
    _print_sum(console, findings)
    console.print(f"batches: {findings.batches}; model {findings.model_hash[:12]}")


def _print_nodes(console: Console, nodes: tuple[NodeFinding, ...]) -> None:
    """Nodes that differ, the most first; those that agree are counted, unless all are asked for."""
    ordered = sorted(nodes, key=lambda n: (not n.problem, -n.differing))
    bad = [node for node in ordered if node.problem or node.differing]
    rows = [(n.name, n.op_type, n.kernel, *_numbers(n)) for n in (ordered if is_whole() else bad)]
    header = ("integer node", "op", "kernel", "elements", "differ", "largest difference")
    if rows:
        title = "node by node, on the inputs they had"
        print_table(console, title, header, rows, (3, 4, 5), marked=range(len(bad)))
    equal = Counter(node.op_type for node in ordered[len(bad) :])
    if equal:
        named = ", ".join(f"{op} {count}" for op, count in equal.most_common())
        console.print(f"equal in every integer, node by node: {named}")


def _print_sum(console: Console, findings: CrossFindings) -> None:
    if findings.weights_alone and not findings.nodes and not findings.unchecked:
        console.print(
            "no node computes in integers: at most weights are stored as integers or float16; "
            "only the outputs are compared"
        )
    elif not findings.nodes and not findings.unchecked:
        console.print("no integers were compared: ONNX Runtime runs no node in integers")
    else:
        console.print(
            f"{len(findings.nodes)} integer nodes, {sum(node.elements for node in findings.nodes)} "
            f"elements: {sum(node.differing for node in findings.nodes)} differ"
        )
    if findings.overflows:
        verb = _VERBS.get(find(findings.machine).saturation_mode, "round otherwise")
        console.print(
            f"{findings.overflows} sums {verb} on {findings.machine}, this machine; the reference "
            "computes likewise. `onnxq predict` says what other machines compute"
        )
    if unchecked := len(findings.unchecked) - len(findings.unreached):
        console.print(f"{unchecked} integer nodes were not checked")
    if findings.unreached:
        console.print(
            f"{len(findings.unreached)} integer nodes were reached by no sample (another branch of "
            "an If, a Loop that did not run): nothing is said of them"
        )
    if findings.end_to_end:
        console.print("end to end: not checked")
    else:
        far = [o for o in findings.outputs if o.differing]
        rounded = ", by rounding" if far and all(map(findings.is_rounding, far)) else ""
        console.print(
            f"end to end, {sum(o.elements for o in findings.outputs)} elements: "
            f"{sum(o.differing for o in far)} differ{rounded}"
        )


def _print_end_to_end(console: Console, findings: CrossFindings) -> None:
    rows = [
        (*row, "rounding" if findings.is_rounding(output) else "")
        for output in findings.outputs
        for row in [(output.name, *_numbers(output))]
    ]
    header = ("output", "elements", "differ", "largest difference", "")
    if rows:
        title = "end to end, the model file on the reference kernels"
        print_table(console, title, header, rows, numbers=(1, 2, 3))
    if findings.end_to_end:
        console.print(f"not checked end to end: {findings.end_to_end}")
    for output in findings.outputs:
        if output.behind:
            console.print(f"in front of output '{output.name}', in float: {output.behind}")
    if findings.first_difference:
        console.print(f"the integers part at node '{findings.first_difference}'")


def _numbers(found: NodeFinding | OutputAgreement) -> tuple[str, str, str]:
    largest = f"{found.largest} {found.unit}" if found.differing else "-"
    return str(found.elements), str(found.differing), found.problem or largest
