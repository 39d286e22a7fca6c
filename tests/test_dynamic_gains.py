from __future__ import annotations

import pytest

from onnxq import targets
from onnxq.dynamic_gains import PRODUCTS, ROWS
from scripts.bench_dynamic import FORMS, SHAPES
from scripts.bench_dynamic import ROWS as MEASURED_ROWS


def test_table_has_what_the_script_measures() -> None:
    assert set(PRODUCTS) == set(FORMS)
    assert ROWS == MEASURED_ROWS
    for shapes in PRODUCTS.values():
        assert set(shapes) == set(SHAPES)
        assert all(len(gains) == len(ROWS) for gains in shapes.values())


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_large_weights_gain_in_integers_and_small_ones_do_not(op_type: str) -> None:
    target = targets.find("portable")
    large = target.dynamic_gain(op_type, "integer", 8, 768, 768, None)
    small = target.dynamic_gain(op_type, "integer", 8, 16, 2048, 1)
    assert large is not None
    assert small is not None
    assert large > 2
    assert small < 1


def test_blocks_gain_with_one_row_and_lose_with_many() -> None:
    target = targets.find("portable")
    one, many = (target.dynamic_gain("MatMul", "blocks", 4, 512, 512, m) for m in (1, 512))
    assert one is not None
    assert many is not None
    assert one > 2 > 1 > many
