from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnxq import targets
from onnxq.targets.dynamic_gains import PRODUCTS, ROWS
from onnxq.targets.recurrent_gains import STORED
from scripts.bench_dynamic import FORMS, SHAPES
from scripts.bench_dynamic import ROWS as MEASURED_ROWS

PRINTED = Path(__file__).resolve().parent.parent / "scripts" / "bench_dynamic.md"


def test_the_table_is_the_one_that_the_script_printed() -> None:
    """Each line: K x N, M, one scale, stored, then FORMS in their order."""
    lines = re.findall(r"^\| (\d+) x (\d+) \| (\d+) \|(.*)\|$", PRINTED.read_text(), re.MULTILINE)
    printed = {
        (form, int(k), int(n), int(m)): float(cell)
        for k, n, m, cells in lines
        for form, cell in zip(FORMS, cells.split("|")[2:], strict=True)
    }
    table = {
        (form, k, n, m): ratio
        for form, shapes in PRODUCTS.items()
        for (k, n), ratios in shapes.items()
        for m, ratio in zip(ROWS, ratios, strict=True)
    }
    assert table == printed


def test_the_table_has_the_shapes_that_the_script_measures() -> None:
    assert set(PRODUCTS) == set(FORMS)
    assert ROWS == MEASURED_ROWS
    assert all(list(shapes) == SHAPES for shapes in PRODUCTS.values())


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("shape", [(32, 32, 64), (64, 64, 4), (128, 128, 1), (16, 2048, None)])
def test_small_products_are_faster_in_float(
    op_type: str, bits: int, shape: tuple[int, int, int | None]
) -> None:
    """A session of one small product hides that: most of its time is the session's own."""
    target = targets.find("portable")
    forms = ("blocks", "integer", "stored")
    gains = {form: target.dynamic_gain(op_type, form, bits, *shape) for form in forms}
    assert all(gain < 1 for gain in gains.values() if gain is not None)
    assert gains["stored"] == (STORED if bits == 8 else None)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_large_weights_gain_in_integers(op_type: str) -> None:
    target = targets.find("portable")
    large = target.dynamic_gain(op_type, "integer", 8, 768, 768, None)
    assert large is not None
    assert large > 2


def test_blocks_gain_with_one_row_and_lose_with_many() -> None:
    target = targets.find("portable")
    one, many = (target.dynamic_gain("MatMul", "blocks", 4, 512, 512, m) for m in (1, 256))
    assert one is not None
    assert many is not None
    assert one > 2 > 1 > many
