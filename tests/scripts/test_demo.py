from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser

from scripts.demo import Row, table, top1

if TYPE_CHECKING:
    from pathlib import Path


def test_table_has_a_line_per_model_with_all_figures() -> None:
    row = Row("net", 0.871, 0.87, 1_148_000, 368_000, 1.8765, 34, 35)
    assert table([row]).splitlines()[-1] == (
        "| net | 87.1% | 87.0% | 1148 kB | 368 kB | 1.88x | 34 of 35 |"
    )


def test_top1_counts_images_whose_largest_logit_is_their_class(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        "net (float[N,3] image) => (float[N,3] y) { y = Identity(image) }"
    )
    onnx.save(model, tmp_path / "net.onnx")
    images = np.eye(3, dtype=np.float32)[np.arange(250) % 3]  # not a multiple of the batch
    labels = (np.arange(250) % 3).astype(np.uint8)
    labels[:25] = 3
    assert top1(tmp_path / "net.onnx", images, labels) == 0.9


def test_the_table_fits_80_columns_and_has_four_lines_for_two_models() -> None:
    rows = [Row("mobilenetv2", 0.871, 0.87, 1_148_000, 368_000, 1.8765, 34, 35)] * 2
    lines = table(rows).splitlines()
    assert len(lines) == 4  # and a line above them: the five that the demo ends with
    assert max(map(len, lines)) <= 80
