"""A small page, whose names are as hostile as names of tensors can be."""

from __future__ import annotations

from onnxq.page.content import (
    CheckedBound,
    Figure,
    FrontPoint,
    Head,
    Histogram,
    MachineColumn,
    MachineTable,
    NamedText,
    NodePart,
    Page,
    TensorPart,
    TensorQParams,
    WeightPart,
)

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028\u2029<!-- {{ 7 * 7 }}"
"""Name that a tensor may have."""


def example_page(nodes: int = 3) -> Page:
    """A chain of nodes behind an input, the first of which has a hostile name."""
    inner = tuple(
        NodePart(
            HOSTILE if place == 0 else f"node_{place}",
            "Conv",
            "int8",
            "it is faster",
            10.0,
            4.0 + place % 9,
            (place + 1,),
            (0,) if place == 0 else (),
            "--set node:x=float",
        )
        for place in range(nodes)
    )
    histogram = Histogram(-1.0, 1.0, tuple(range(72)))
    qparams = TensorQParams("uint8", 0.01, 128, -1.28, 1.27)
    return Page(
        Head(
            "m.onnx → q.onnx",
            "It is 1% away from float.",
            bounds=(
                CheckedBound("20 dB or more: worst 31.0 dB", True),
                CheckedBound("2 steps: 9.0", False),
            ),
            figures=(Figure("size", "1 kB", "float 4 kB"),),
            origin=(NamedText("float model", "c0ffee"),),
            command="onnxq report m.onnx q.onnx x.npz -o report.html",
        ),
        (NodePart("x", "input", "end", "", tensors=(0,)), *inner),
        (
            TensorPart(
                *("x", 0, 50.0, 50.0, float("inf"), 0.5, 0.0, qparams, histogram),
                sampled_db=50.0,
                channel_share=0.02,
            ),
            *(
                TensorPart(f"t{p}", p + 1, 30.0 - p % 20, 35.0, None, 3.0, 0.0, qparams, histogram)
                for p in range(nodes)
            ),
        ),
        (WeightPart("w", 1, "int8", "2 channels", (-1.0, -0.5), (1.0, 0.25), (1.0, 0.5)),),
        tuple((p, p + 1) for p in range(nodes)),
        (NamedText("lost", "no sample reached it"),),
        (("Reorder", 1.0, 2.0),),
        (100.0, 60.0),
        MachineTable(("node_1",), (MachineColumn(("x86-avx2",), ("can differ",)),), "One layer."),
        (
            FrontPoint("point-1", 0.9, 31.0, 0.6, "1.00 kB", "where it began", True, True),
            FrontPoint("point-2", 0.8, 25.0, 0.5, "900 B", "all int4", True, False),
        ),
    )
