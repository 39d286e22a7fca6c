"""Renders a page as one HTML file, which needs no network and may reach none.

The file's Content-Security-Policy lets nothing in but its own style sheet and its own script, by
their hashes: a page that is opened from a disk can send nothing anywhere, and nothing that a model
calls its tensors can run.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from onnxq.core.atomic import write_atomically
from onnxq.page.charts import (
    HIGH,
    WIDE,
    front_chart,
)
from onnxq.page.details import details_of
from onnxq.page.drawing import (
    BOX_HIGH,
    ENDS,
    difference,
    drawing_of,
    takes_time,
)
from onnxq.page.environment import asset, environment
from onnxq.page.island import island
from onnxq.page.wording import SEEN_US

if TYPE_CHECKING:
    from onnxq.page.content import NodePart, Page, TensorPart

FIRST_ROWS = 25
"""Rows of a table that are shown at first, and printed; a button shows the rest."""


def write_page(page: Page, path: str | Path) -> None:
    """Writes a page, whole or not at all.

    Raises:
        OutputError: the path cannot be written.
    """
    data = html_of(page).encode()
    write_atomically(Path(path), lambda file: file.write(data))


def html_of(page: Page) -> str:
    """The text of a page's file."""
    drawing = drawing_of(page)
    style, script = asset("page.css"), asset("page.js")
    real = [(place, node) for place, node in enumerate(page.nodes) if node.form != ENDS]
    timed, first_times = _timed(real)
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            head=page.head,
            policy=_policy(style, script),
            style=Markup(style),  # our own file
            script=Markup(script),  # likewise
            island=island(details_of(page, drawing)),
            drawing=drawing,
            box_high=BOX_HIGH,
            nodes=real,
            timed=timed,
            first_times=first_times,
            most_us=max((abs(difference(node) or 0.0) for _, node in real), default=0.0),
            tensors=sorted(enumerate(page.tensors), key=_badness),
            forms=sorted({node.form for _, node in real}),
            front=front_chart(page.front, page.goal_db),
            missing=defaultdict(str, {fact.name: fact.value for fact in page.missing}),
            first_rows=FIRST_ROWS,
            wide=WIDE,
            high=HIGH,
        )
    )


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    """Hash of what stands in an element, as a policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _badness(item: tuple[int, TensorPart]) -> tuple[bool, float]:
    """The lower, the worse; NaN is the worst."""
    db = item[1].error_db
    return (not math.isnan(db), db)


def _timed(nodes: list[tuple[int, NodePart]]) -> tuple[list[tuple[int, NodePart]], int]:
    """Nodes that take time of their own, and how many of them are shown at first.

    These are the ones that differ most, from the largest loss to the largest gain; of nodes that
    all take the same time, as many as fit.
    """

    def lost(item: tuple[int, NodePart]) -> float:
        return difference(item[1]) or 0.0

    timed = sorted((i for i in nodes if takes_time(i[1])), key=lambda item: -abs(lost(item)))
    differing = sum(abs(lost(item)) >= SEEN_US for item in timed)
    first = min(differing or len(timed), FIRST_ROWS)
    ahead, folded = (
        sorted(part, key=lost, reverse=True) for part in (timed[:first], timed[first:])
    )
    return [*ahead, *folded], first
