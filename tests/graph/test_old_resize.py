from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.graph.passes.opset import upgrade_opset

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

X = np.random.default_rng(0).normal(size=(1, 2, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("op", ["Upsample", "Resize"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 2), (1.6, 2.6), (0.6, 0.4), (1, 0.7)])
def test_a_raised_resize_computes_what_the_old_one_did(
    op: str, mode: str, scales: tuple[float, float], parse: Parse, run: Run
) -> None:
    if op == "Upsample" and min(scales) < 1:
        return  # it only grows
    weights = {"s": np.array([1, 1, *scales], np.float32)}
    text = f'g (float[1,2,5,7] x) => (float[1,2,h,w] y) {{ y = {op}<mode="{mode}">(x, s) }}'
    model = parse(text, weights, 9 if op == "Upsample" else 10, ir_version=8)
    before = run(model, {"x": X})[0]
    upgrade_opset(model, 13)
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)


def test_scales_of_an_attribute_are_kept_too(parse: Parse, run: Run) -> None:
    model = parse("g (float[1,2,5,7] x) => (float[1,2,h,w] y) {"
                  ' y = Upsample<mode="nearest", scales=[1.0, 1.0, 1.6, 2.6]>(x) }',
                  {}, 8, ir_version=8)  # fmt: skip
    before = run(model, {"x": X})[0]
    upgrade_opset(model, 13)
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)


def test_scales_that_no_rounding_fits_are_refused_with_the_remedy(parse: Parse) -> None:
    text = "g (float[1,2,5,7] x) => (float[1,2,h,w] y) { y = Resize(x, s) }"
    model = parse(text, {"s": np.array([1, 1, 2, 0.5], np.float32)}, 10, ir_version=8)
    with pytest.raises(UnsupportedError, match=r"opset 10 takes nearest.*opset_version=13"):
        upgrade_opset(model, 13)
    model = parse("g (float[1,2,5,7] x, float[4] s) => (float[1,2,h,w] y) { y = Resize(x, s) }",
                  {}, 10, ir_version=8)  # fmt: skip
    with pytest.raises(UnsupportedError, match="computed at run time"):
        upgrade_opset(model, 13)
