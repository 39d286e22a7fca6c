"""Drawing of a page's graph: boxes and lines in SVG units, and the classes that colour them."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnxq.page.content import NodePart, Page
from onnxq.page.layering import Point, layout_of
from onnxq.page.wording import SEEN_US, change, decibels, tenth

BOX_HIGH = 50
"""Height of a box: three lines."""
LEAST_WIDE, MOST_WIDE, SIDES = 84.0, 190.0, 22.0
TITLE, NAME = 7.4, 5.8
"""Width of a letter in the title and in the name below it."""
MOST_TITLE, MOST_NAME = 22, 28
"""Letters that fit the widest box."""
LINE, LINES = 4.0, 5
"""Units between lines to rails, and how many of them fit below a box."""
ERROR_BOUNDS = (15.0, 20.0, 25.0, 30.0, 40.0, 50.0)
"""Decibels between the classes of errors: e0 is the worst, e6 the best."""
TIME_CLASSES = 3
"""Classes of times on either side: t-3 gains most, t3 loses most."""
MODEL_IO = "end"
"""Precision of inputs and outputs, which are drawn and are no nodes."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node of the drawing.

    Attributes:
        classes: of the style sheet: one for the error, one for the time, one for the precision.
        error, time, precision: its figure, in the words of each colouring.
    """

    x: float
    y: float
    width: float
    classes: str
    title: str
    name: str
    error: str
    time: str
    precision: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing."""

    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    width: float
    height: float


def drawing_of(page: Page) -> Drawing:
    """The drawing of a page's nodes."""
    titles = [
        shortened(node.name if node.precision == MODEL_IO else node.op_type) for node in page.nodes
    ]
    names = ["" if node.precision == MODEL_IO else shown_name(node) for node in page.nodes]
    widths = [
        min(max(LEAST_WIDE, SIDES + max(TITLE * len(title), NAME * len(name))), MOST_WIDE)
        for title, name in zip(titles, names, strict=True)
    ]
    layout = layout_of(widths, page.edges)
    most = max((abs(d) for n in page.nodes if (d := difference(n)) is not None), default=0.0)
    boxes = tuple(
        Box(
            round(x - width / 2, 1),
            round(y - BOX_HIGH / 2, 1),
            width,
            f"{error_level(worst)} {time_class(node, most)} f-{node.precision}",
            title,
            name,
            decibels(worst),
            _time_words(node),
            precision_words(node.precision),
        )
        for (x, y), width, node, title, name in zip(
            layout.centres, widths, page.nodes, titles, names, strict=True
        )
        for worst in [worst_error(page, node)]
    )
    lines = tuple(
        _line(source, layout.centres[source], layout.centres[reader], rail)
        for (source, reader), rail in zip(page.edges, layout.rails, strict=True)
    )
    return Drawing(boxes, lines, math.ceil(layout.width), math.ceil(layout.height))


UNLIKE = 1 / 8
"""Share of a range below which its median channel has lost three bits to the widest one."""


def is_unlike(channel_share: float | None) -> bool:
    """Whether one channel takes the range of all."""
    return channel_share is not None and channel_share < UNLIKE


def shown_name(node: NodePart) -> str:
    """Name of a node as its box has it: without the operator at its end, which the title says."""
    parts = node.name.split("/")
    if len(parts) > 1 and parts[-1] == node.op_type:
        parts.pop()
    return shortened("/".join(parts).lstrip("/") or node.name, MOST_NAME)


def shortened(text: str, most: int = MOST_TITLE) -> str:
    """The text, with its middle left out where it is long."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"


def difference(node: NodePart) -> float | None:
    """Microseconds that the node costs in the quantized model more than in float."""
    if node.float_us is None or node.quantized_us is None:
        return None
    return node.quantized_us - node.float_us


def takes_time(node: NodePart) -> bool:
    """Whether it takes time of its own that is seen, in either model."""
    return max(node.float_us or 0.0, node.quantized_us or 0.0) >= SEEN_US


def worst_error(page: Page, node: NodePart) -> float | None:
    """The lowest SQNR of the node's results; None: none was compared."""
    found = [page.tensors[place].error_db for place in node.tensors]
    return min(found, key=lambda db: -math.inf if math.isnan(db) else db) if found else None


def error_level(db: float | None) -> str:
    """Class of an SQNR, e0 to e6, or e-none; NaN is the worst."""
    if db is None:
        return "e-none"
    return f"e{0 if math.isnan(db) else bisect_right(ERROR_BOUNDS, db)}"


def time_class(node: NodePart, most: float) -> str:
    """Class of what it gains or loses, t-3 to t3, beside the largest difference; or t-none."""
    value = difference(node)
    if value is None or not most or not takes_time(node):
        return "t-none"
    level = round(TIME_CLASSES * math.copysign(math.sqrt(abs(value) / most), value))
    return f"t{level}"


def precision_words(precision: str) -> str:
    """A precision in words."""
    return PRECISION_WORDS.get(precision, precision)


PRECISION_WORDS = {
    "int8": "integers",
    "int8_float_output": "integers, float out",
    "dynamic_int8": "integers of weights alone",
    "weight_only": "stored as integers",
    "weight_only_groupwise": "stored as integers in groups",
    "weight_only_float16": "stored as float16",
    "float_between_qdq": "16 bits",
    "float": "float",
    "inside": "in its neighbour",
    MODEL_IO: "",
}
"""Precision of a node -> words."""


def _time_words(node: NodePart) -> str:
    value = difference(node)
    return "–" if value is None or not takes_time(node) else change(value)


def _line(source: int, start: Point, end: Point, rail: float | None) -> str:
    """Path of an edge from below its node to above its reader, straight or by a rail."""
    (x, top), (to, bottom) = (start[0], start[1] + BOX_HIGH / 2), (end[0], end[1] - BOX_HIGH / 2)
    if rail is None:
        bend = (top + bottom) / 2
        way = f"C{tenth(x)} {tenth(bend)} {tenth(to)} {tenth(bend)} {tenth(to)} {tenth(bottom)}"
    else:
        aside = LINE * (1 + source % LINES)  # so that lines between two layers do not meet
        way = f"V{tenth(top + aside)}H{tenth(rail)}V{tenth(bottom - aside)}H{tenth(to)}"
        way += f"V{tenth(bottom)}"
    return f"M{tenth(x)} {tenth(top)}{way}"


def legend_errors() -> Sequence[tuple[str, str]]:
    """(class, words) of the colours of errors, the worst first."""
    bounds = [f"{end:g}" for end in ERROR_BOUNDS]
    between = [f"{low} to {high} dB" for low, high in pairwise(bounds)]
    words = [f"below {bounds[0]} dB", *between, f"{bounds[-1]} dB and more"]
    return [(f"e{level}", said) for level, said in enumerate(words)]
