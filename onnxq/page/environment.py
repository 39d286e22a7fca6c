"""The environment of this room's templates: jinja2, in which every text is escaped."""

import functools
import math
from pathlib import Path

import jinja2

from onnxq.page import drawing, wording
from onnxq.page.charts import channels_chart, difference_bar, histogram_chart
from onnxq.shown import shown_lines


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of this room, in which every text is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("onnxq.page"),
        autoescape=True,
        # a plain text as it is shown; Markup and numbers stay
        finalize=lambda value: shown_lines(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "db": wording.decibels,
        "us": wording.microseconds,
        "taken": wording.time_taken,
        "change": wording.change,
        "share": wording.share,
        "number": wording.number,
        "precision": drawing.precision_words,
        "short": drawing.shortened,
        "part": wording.part_of_error,
        "level": drawing.error_level,
        "sortable": _sortable,
        "cost": drawing.difference,
        "histogram": histogram_chart,
        "channels": channels_chart,
    }
    made.tests["unlike"] = drawing.is_unlike
    made.globals["inf"] = math.inf
    made.globals["difference_bar"] = difference_bar
    made.globals["legend_errors"] = drawing.legend_errors()
    return made


@functools.cache
def asset(name: str) -> str:
    """A file that stands beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text("utf-8").strip()


def _sortable(value: float | None) -> str:
    """A number as a table is sorted by; what is not known comes last."""
    if value is None:
        return ""
    if math.isnan(value):
        return "-1e308"
    return repr(min(max(value, -1e307), 1e307))
