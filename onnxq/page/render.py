"""Renders a page as one HTML file, which needs no network and may reach none.

The file's Content-Security-Policy lets nothing in but its own style sheet and its own script, by
their hashes: a page that is opened from a disk can send nothing anywhere, and nothing that a model
calls its tensors can run.
"""

import base64
import hashlib
import json
import math
from collections import defaultdict
from pathlib import Path

from markupsafe import Markup

from onnxq.core.atomic import write_atomically
from onnxq.page.charts import HIGH, WIDE, Chart, channels_chart, front_chart, histogram_chart
from onnxq.page.content import NodePart, Page, TensorPart, WeightPart
from onnxq.page.drawing import (
    BOX_HIGH,
    MODEL_IO,
    Drawing,
    difference,
    drawing_of,
    is_unlike,
    precision_words,
    takes_time,
)
from onnxq.page.environment import asset, environment
from onnxq.page.wording import SEEN_US, change, decibels, number, part_of_error, share, time_taken

FIRST_ROWS = 25
"""Rows of a table that are shown at first, and printed; a button shows the rest."""


def write_page(page: Page, path: str | Path) -> None:
    """Writes a page, whole or not at all."""
    data = html_of(page).encode()
    write_atomically(Path(path), lambda file: file.write(data))


def html_of(page: Page) -> str:
    """The text of a page's file."""
    drawing = drawing_of(page)
    style, script = asset("page.css"), asset("page.js")
    real = [(i, node) for i, node in enumerate(page.nodes) if node.precision != MODEL_IO]
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
            precisions=sorted({node.precision for _, node in real}),
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


# --- Details of a page's parts, as the island holds them for the panel that a click opens


Json = dict[str, object]


def details_of(page: Page, drawing: Drawing) -> Json:
    """Nodes, tensors and weights by their places; texts and charts are ready to be shown."""
    ahead: dict[int, list[int]] = defaultdict(list)
    behind: dict[int, list[int]] = defaultdict(list)
    for source, reader in dict.fromkeys(page.edges):
        behind[source].append(reader)
        ahead[reader].append(source)
    nodes = [
        _node(node, place) | {"ins": ahead[place], "outs": behind[place]}
        for place, node in enumerate(page.nodes)
    ]
    for node, box in zip(nodes, drawing.boxes, strict=True):
        node["box"] = [box.x, box.y, box.width]
    return {
        "nodes": nodes,
        "tensors": [_tensor(tensor) for tensor in page.tensors],
        "weights": [_weight(weight) for weight in page.weights],
    }


def _node(node: NodePart, place: int) -> Json:
    words = precision_words(node.precision)
    facts = [("precision", words), ("why", node.reason)] if node.reason else []
    cost = difference(node)
    if cost is not None and takes_time(node):
        facts.append(("time in float", time_taken(node.float_us)))
        facts.append(("time quantized", f"{time_taken(node.quantized_us)}, {change(cost)}"))
    return {
        "place": place,
        "name": node.name,
        "op": node.op_type,
        "facts": facts,
        "revert": node.revert,
        "tensors": list(node.tensors),
        "weights": list(node.weights),
    }


def _tensor(tensor: TensorPart) -> Json:
    facts = [("SQNR", decibels(tensor.error_db))]
    if tensor.sampled_db is not None and tensor.local_db is not None:
        facts.append(("on a few samples", decibels(tensor.sampled_db)))
        facts.append(("local, on these", part_of_error(tensor.local_db)))
    if tensor.accumulated_db is not None:
        facts.append(("accumulated, on these", part_of_error(tensor.accumulated_db)))
    if tensor.max_lsb is not None:
        facts.append(("largest error", f"{tensor.max_lsb:.1f} LSB"))
    if tensor.saturated_share is not None:
        facts.append(("beyond its range", share(tensor.saturated_share)))
    if tensor.channel_share is not None:
        words = f"reaches {share(tensor.channel_share)} of the range"
        advice = "; unlike channels" if is_unlike(tensor.channel_share) else ""
        facts.append(("median channel", words + advice))
    qparams = tensor.qparams
    if qparams is not None:
        facts += [
            ("integers", f"{qparams.dtype}, zero point {qparams.zero_point}"),
            ("scale", number(qparams.scale)),
            ("range", f"{number(qparams.low)} to {number(qparams.high)}"),
        ]
    found = tensor.histogram
    chart = None if found is None else _chart(histogram_chart(found, qparams))
    return {"name": tensor.name, "node": tensor.node, "facts": facts, "chart": chart}


def _weight(weight: WeightPart) -> Json:
    facts = [("integers", weight.dtype), ("scales", weight.granularity)]
    chart = _chart(channels_chart(weight)) if weight.lows else None
    return {"name": weight.name, "node": weight.node, "facts": facts, "chart": chart}


def _chart(chart: Chart) -> Json:
    return {
        "bars": chart.bars,
        "band": chart.band and [round(end, 1) for end in chart.band],
        "ranges": chart.ranges,
        "steps": chart.steps,
        "ticks": [[tick.at, tick.text] for tick in chart.ticks],
        "words": chart.words,
    }


# --- The data island of a page: JSON inside of a script element, which no text in it can leave
#
# Every character outside of ASCII is written as an escape, and so are <, > and &: whatever a tensor
# is called, `</script>`, `<!--`, quotes and line separators stay text. The element's type is no
# script's, so that nothing of it ever runs.


_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\x7f": "\\u007f"})


def island(data: object) -> Markup:
    """JSON text that can stand between <script type="application/json"> and </script>."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))  # escaped above
