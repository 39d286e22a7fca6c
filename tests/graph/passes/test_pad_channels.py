from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.graph.passes.pad_channels import PadDepthwise, padded_channels
from onnxq.graph.types import infer_types
from onnxq.survey.verified import verify

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from tests.graph.conftest import Parse, Run

C = 20
X = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
CHAIN = (
    "a = Conv(x, w, b) r = Relu(a) d = Conv<group=20, pads=[1, 1, 1, 1]>(r, k, c) h = HardSwish(d)"
)
SQUEEZED = (
    "m = GlobalAveragePool(h) e = Conv(m, down) f = Relu(e) g = Conv(f, up) s = HardSigmoid(g)"
    " t = Mul(h, s) y = Conv(t, v)"
)


def weights(channels: int = C) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {
        "w": (channels, 3, 1, 1),
        "b": (channels,),
        "k": (channels, 1, 3, 3),
        "c": (channels,),
        "v": (4, channels, 1, 1),
        "down": (5, channels, 1, 1),
        "up": (channels, 5, 1, 1),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def model_of(parse: Parse, body: str, channels: int = C, out: str = "float[N,4,8,8] y") -> ir.Model:
    body = body.replace("group=20", f"group={channels}")
    text = f"net (float[N,3,8,8] x) => ({out}) {{ {body} }}"
    constants = {
        name: w
        for name, w in weights(channels).items()
        if f"{name})" in body or f" {name}," in body
    }
    model = parse(text, constants, 21)
    infer_types(model)
    return model


@pytest.mark.parametrize("end", ["y = Conv(h, v)", SQUEEZED, "n = Mul(h, h) y = Conv(n, v)"])
def test_zeros_beside_the_channels_change_no_result(end: str, parse: Parse, run: Run) -> None:
    model = model_of(parse, f"{CHAIN} {end}")
    (before,) = run(model, {"x": X})
    assert PadDepthwise()(model).modified
    depthwise = [n for n in model.graph if n.attributes.get_int("group", 1) > 1]
    assert [n.attributes.get_int("group") for n in depthwise] == [32]
    (after,) = run(model, {"x": X})
    # sums of at most 32 products of about unit size in another order
    np.testing.assert_allclose(after, before, rtol=0, atol=32 * 2**-18)
    assert padded_channels(model)["d"] == C
    assert not PadDepthwise()(model).modified


@pytest.mark.parametrize(
    ("body", "channels"),
    [
        (f"{CHAIN} y = Conv(h, v)", 16),
        (f"{CHAIN} y = Conv(h, v)", 12),
        (f"{CHAIN} z = Concat<axis=1>(h, h) q = Identity(h) y = Conv(q, v)", C),
        (f"{CHAIN} p = Softmax<axis=1>(h) y = Conv(p, v)", C),
        ("d = Conv<group=20>(x, k, c) y = Conv(d, v)", 3),
    ],
    ids=["16 already", "less than 16", "beside others", "a sum over channels", "of an input"],
)
def test_other_convolutions_stay(body: str, channels: int, parse: Parse) -> None:
    assert not PadDepthwise()(model_of(parse, body, channels)).modified


def test_a_constant_that_two_nodes_read_is_padded_once(parse: Parse) -> None:
    again = CHAIN
    for name in "ardh":
        again = re.sub(rf"\b{name}\b", f"{name}2", again)
    model = model_of(parse, f"{CHAIN} {again} y = Conv(h, v) z = Conv(h2, v)")
    assert PadDepthwise()(model).modified
    assert sorted(model.graph.initializers) == [f"{name}_padded" for name in "bckvw"]


def test_a_result_of_the_model_keeps_its_channels(parse: Parse) -> None:
    model = model_of(parse, CHAIN.replace("h = ", "y = "), out="float[N,20,8,8] y")
    assert not PadDepthwise()(model).modified


def test_padded_tensors_are_verified_by_the_channels_that_they_had(parse: Parse) -> None:
    model = model_of(parse, f"{CHAIN} {SQUEEZED}")
    int8 = onnxq.quantize(model, [{"x": X}])
    assert padded_channels(int8)
    found = verify(model, int8, {"x": X})
    assert {"r", "d", "h"} <= {tensor.name for tensor in found.tensors}
    assert found.unmatched == ()
    onnxq.cross_check(int8, {"x": X}).check()
