from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.graph.passes.resize_axes import WriteAxesOut
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
SCALES, SIZES = np.array([2, 1.5], np.float32), np.array([8, 7])


def model_of(parse: Parse, call: str, constants: Feeds, batch: int | str = 2) -> ir.Model:
    made = parse(f"g (float[{batch},3,4,5] x) => (float[{batch},3,P,Q] y) {{ {call} }}", constants)
    infer_types(made)
    return made


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("axes", ["[2, 3]", "[-1, -2]"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_axes_are_written_out_with_the_same_result(
    mode: str, axes: str, by: str, parse: Parse, run: Run
) -> None:
    slots = "x, , s" if by == "scales" else "x, , , s"
    call = f'y = Resize<mode="{mode}", axes={axes}>({slots})'
    model = model_of(parse, call, {"s": SCALES if by == "scales" else SIZES})
    before = run(model, {"x": X})[0]
    assert WriteAxesOut()(model).modified
    assert "axes" not in model.graph.node(0).attributes
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)
    assert not WriteAxesOut()(model).modified


def test_scales_are_written_out_where_the_batch_is_open(parse: Parse) -> None:
    call = "y = Resize<axes=[2, 3]>(x, , s)"
    assert WriteAxesOut()(model_of(parse, call, {"s": SCALES}, "N")).modified


@pytest.mark.parametrize(
    "call",
    [
        "y = Resize<axes=[2, 3]>(x, , , s)",  # of an open batch the size is not known
        'y = Resize<axes=[2, 3], keep_aspect_ratio_policy="not_smaller">(x, , , s)',
    ],
)
def test_other_axes_are_left(call: str, parse: Parse) -> None:
    assert not WriteAxesOut()(model_of(parse, call, {"s": SIZES}, "N")).modified


def test_convolutions_around_it_are_quantized(parse: Parse) -> None:
    w = np.random.default_rng(1).normal(size=(8, 3, 3, 3)).astype(np.float32)
    v = np.random.default_rng(2).normal(size=(4, 8, 3, 3)).astype(np.float32)
    model = parse(
        """g (float[1,3,24,24] x) => (float[1,4,P,Q] y) {
        a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a)
        c = Resize<mode="nearest", axes=[2,3]>(b, , , s)
        y = Conv<pads=[1,1,1,1]>(c, v) }""",
        {"w": w, "v": v, "s": np.array([48, 48])},
    )
    x = np.random.default_rng(3).normal(size=(8, 3, 24, 24)).astype(np.float32)
    made = onnxq.quantize(model, {"x": x}, target="portable")
    assert made.verdict is not None
    assert not made.verdict.left_in_float
    assert made.verdict.integer_nodes > 2
