"""The nodes of a report that cost most accuracy and time, in a line each, for a terminal."""

import math

from onnxq.errors import MAX_NAMED
from onnxq.page.content import Page
from onnxq.page.drawing import difference
from onnxq.page.wording import SEEN_US, decibels, microseconds


def costly(page: Page) -> list[str]:
    """Lines on the nodes whose own error is largest, and on those that take longer than in float.

    What was not measured has no line; nodes that are equal to float alone are not named.
    """
    lines = []
    local = [(t.local_db, page.nodes[t.node]) for t in page.tensors if t.node is not None]
    worst = [(db, node) for db, node in local if db is not None and db != math.inf]
    if worst:
        worst.sort(key=lambda each: (not math.isnan(each[0]), each[0]))
        named = [f"{n.name} ({n.op_type}, {decibels(db)} alone)" for db, n in worst[:MAX_NAMED]]
        lines.append(f"costs most accuracy: {', '.join(named)}")
    longer = [(us, node) for node in page.nodes if (us := difference(node) or 0.0) >= SEEN_US]
    if longer:
        longer.sort(key=lambda each: -each[0])
        named = [f"{n.name} ({n.op_type}, +{microseconds(us)})" for us, n in longer[:MAX_NAMED]]
        lines.append(f"takes longer than in float: {', '.join(named)}")
    elif page.whole_us is not None:
        lines.append("no node takes longer than in float")
    return lines
