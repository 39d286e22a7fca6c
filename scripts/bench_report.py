"""Sizes of HTML reports, the time to write them, and the time until a browser shows them.

    python scripts/bench_report.py [--output scripts/bench_report.md]

ResNet-20, the small transformer, and a network of 2,000 nodes, each quantized with onnxq's default
but the last one, which is all in integers, so that every tensor has codes. Measured apart: looking
at both models (local errors, times, machines), rendering the page (its layout among it),
and Chromium: until the page is there, and until it answers a click on the last node. A browser
needs scripts/setup_browser; without one, its columns are empty.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find tests/

import onnxq
from models.resnet import resnet20
from models.transformer import example_inputs, transformer
from onnxq.checking.sides import sides_of
from onnxq.checking.verify import open_for
from onnxq.page.render import html_of
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.survey.heading import ReportSubject
from onnxq.survey.survey import survey
from onnxq.survey.verified import compared
from scripts._tables import head, line, publish, versions
from tests.browser.chromium import open_browser, why_missing

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir
    import torch

    from onnxq.core.arrays import Array
    from onnxq.qconfig import QConfigMapping

T = TypeVar("T")
SAMPLES = 16
BLOCKS = 500
"""Blocks of four nodes each."""
CLICK = """
const begun = performance.now();
const boxes = document.querySelectorAll("#drawing .node");
boxes[boxes.length - 1].dispatchEvent(new MouseEvent("click", {bubbles: true}));
document.body.getBoundingClientRect();
return [performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
        performance.now() - begun];
"""


@dataclass(frozen=True)
class Case:
    """A model to write a report on.

    Attributes:
        name: for the table.
        model: float.
        samples: of its inputs.
        qconfig: None: the default.
    """

    name: str
    model: ir.Model | onnx.ModelProto
    samples: dict[str, Array]
    qconfig: QConfigMapping | None = None


def deep_network() -> onnx.ModelProto:
    """Residual blocks: Conv, Relu, Conv, Add."""
    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for block in range(BLOCKS):
        names = [f"blocks.{block}.{part}" for part in ("w1", "w2", "a", "r", "c", "y")]
        w1, w2, a, r, c, y = names
        for name in (w1, w2):
            w = rng.normal(scale=0.1, size=(8, 8, 3, 3)).astype(np.float32)
            weights.append(numpy_helper.from_array(w, name))
        nodes += [
            helper.make_node("Conv", [x, w1], [a], f"/blocks.{block}/conv1", pads=[1] * 4),
            helper.make_node("Relu", [a], [r], f"/blocks.{block}/relu"),
            helper.make_node("Conv", [r, w2], [c], f"/blocks.{block}/conv2", pads=[1] * 4),
            helper.make_node("Add", [x, c], [y], f"/blocks.{block}/add"),
        ]
        x = y
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 8, 8, 8])
        for name in ("x", x)
    ]
    graph = helper.make_graph(nodes, "deep", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def exported(module: torch.nn.Module) -> ir.Model:
    """The model of an image module."""
    return onnxq.export(module, example_inputs())


def cases() -> list[Case]:
    """The models of the table."""
    with np.load(Path(__file__).resolve().parent.parent / "models" / "test.npz") as test:
        images = {"image": test["image"][:SAMPLES]}
    noise = np.random.default_rng(1).normal(size=(2, 8, 8, 8)).astype(np.float32)
    integers = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    return [
        Case("ResNet-20", exported(resnet20()), images),
        Case("transformer", exported(transformer()), images),
        Case(f"{4 * BLOCKS} nodes", deep_network(), {"x": noise}, integers),
    ]


def taken(run: Callable[[], T]) -> tuple[float, T]:
    """(CPU seconds of this process, result) of a call."""
    begun = time.process_time()
    result = run()
    return time.process_time() - begun, result


def row(case: Case, folder: Path) -> str:
    """The line of a model."""
    int8 = onnxq.quantize(case.model, case.samples, qconfig=case.qconfig, check=onnxq.Check.NONE)
    sides = sides_of(case.model, int8)
    found = compared(sides, open_for(sides, case.samples, None, (), {}), {})
    subject = ReportSubject("m.onnx", "m.int8.onnx", (1, 1))
    batches = found.excerpt.chosen()
    looking_s, page = taken(
        lambda: survey(subject, found.sides, found.findings, batches, found.feedback)
    )
    rendering_s, text = taken(lambda: html_of(page))
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    shown = ["-", "-"]
    if not why_missing():
        with open_browser(folder / "profile") as browser:
            browser.open(path)
            shown = [f"{ms / 1000:.2f}" for ms in browser.run(CLICK)]
    nodes = len(page.nodes)
    tensors = len(page.tensors)
    size = f"{path.stat().st_size / 1e6:.2f}"
    return line(case.name, nodes, tensors, size, f"{looking_s:.1f}", f"{rendering_s:.2f}", *shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the table there, too")
    arguments = parser.parse_args()
    rows = []
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(case, Path(folder)))
    columns = (
        "model", "nodes and ends", "tensors", "MB", "looking, CPU s", "rendering, CPU s",
        "until shown, s", "a click, s",
    )  # fmt: skip
    publish(
        [
            "# Reports: sizes and times",
            "",
            f"`python scripts/bench_report.py`; {versions('onnxruntime', 'onnx', 'numpy')}.",
            "Seconds in the browser are those of headless Chromium on the same machine.",
            "",
            head(*columns),
            *rows,
        ],
        arguments.output,
    )


if __name__ == "__main__":
    main()
