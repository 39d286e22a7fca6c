"""Details of a page's parts, as the island holds them for the panel that a click opens."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from onnxq.page.charts import channels_chart, histogram_chart
from onnxq.page.drawing import difference, form_words, is_unlike, takes_time
from onnxq.page.wording import change, decibels, number, part_of_error, share, time_taken

if TYPE_CHECKING:
    from onnxq.page.charts import Chart
    from onnxq.page.content import NodePart, Page, TensorPart, WeightPart
    from onnxq.page.drawing import Drawing

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
    facts = [("form", form_words(node.form)), ("why", node.reason)] if node.reason else []
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
        facts.append(("largest error", f"{tensor.max_lsb:.1f} steps"))
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
            ("step", number(qparams.scale)),
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
        "reach": chart.reach,
        "steps": chart.steps,
        "ticks": [[tick.at, tick.text] for tick in chart.ticks],
        "words": chart.words,
    }
