from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.pixels import TakePixels
from onnxq.graph.quantized import Meaning, QuantizedIO
from onnxq.qconfig import Pixels

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

RNG = np.random.default_rng(0)
P = RNG.integers(0, 256, (2, 3, 9, 7), dtype=np.uint8)
P[0, :, :2] = 255  # at the border, where a padding of other than float 0 would show
W = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
B = RNG.normal(size=4).astype(np.float32)
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = Pixels(128, 64, 1)  # type: ignore[arg-type]  # one number
HALVES = Pixels(0.5, 0.5)  # type: ignore[arg-type]  # pixel 127.5 is 0
MEANS = Pixels((103.0, 116.0, 123.0), (1.0,), 1)  # subtracted alone
STDS = Pixels((10.0,), (50.0, 60.0, 70.0), 1)
NEAR = 1e-5  # 100 dB


def meaning(pixels: Pixels) -> QuantizedIO:
    return QuantizedIO(Meaning.PIXELS, "uint8", pixels.factors, pixels.zeros)


def normalized(p: npt.NDArray[np.uint8], pixels: Pixels) -> npt.NDArray[np.float32]:
    shape = (-1, 1, 1)
    mean, std = (np.array(each, np.float64).reshape(shape) for each in (pixels.mean, pixels.std))
    return np.asarray((p * pixels.scale - mean) / std, np.float32)


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def assert_close(after: npt.NDArray[np.float32], before: npt.NDArray[np.float32]) -> None:
    assert np.abs(after - before).max() <= NEAR * np.abs(before).max()


CONVS = {
    "padded": "Conv<pads=[1,1,1,1]>(x, w, b)",
    "padded on one side": "Conv<pads=[0,0,2,0], strides=[2,2]>(x, w)",
    "same": 'Conv<auto_pad="SAME_UPPER">(x, w, b)',
    "inside": "Conv(x, w)",
    "valid": 'Conv<auto_pad="VALID", strides=[2,2]>(x, w, b)',
    "two readers": "Add(Conv<pads=[1,1,1,1]>(x, w, b), Conv<pads=[1,1,1,1]>(x, w))",
}


@pytest.mark.parametrize("pixels", [IMAGENET, CIFAR, HALVES, MEANS, STDS], ids=repr)
@pytest.mark.parametrize("call", CONVS.values(), ids=CONVS)
def test_model_on_pixels_equals_the_model_on_normalized_ones_at_the_border_too(
    call: str, pixels: Pixels, parse: Parse, run: Run
) -> None:
    text = f"g (float[N,3,9,7] x) => (float[N,4,h,w2] y) {{ y = {call} }}"
    if call.startswith("Add"):
        first, second = call[4:-1].split("), ")
        text = "g (float[N,3,9,7] x) => (float[N,4,h,w2] y) "
        text += f"{{ s = {first}) t = {second} y = Add(s, t) }}"
    model = parse(text, {"w": W, "b": B})
    (before,) = run(model, {"x": normalized(P, pixels)})
    taken = TakePixels("x", meaning(pixels))
    assert taken(model).modified
    assert not taken.notes
    (after,) = run(model, {"x": P})
    assert_close(after, before)
    assert ops(model)["DequantizeLinear"] == 1


def test_one_whole_zero_point_leaves_weights_as_they_are(parse: Parse) -> None:
    model = parse(
        "g (float[N,3,9,7] x) => (float[N,4,h,w2] y) { y = Conv<pads=[1,1,1,1]>(x, w, b) }",
        {"w": W, "b": B},
    )
    TakePixels("x", meaning(CIFAR))(model)
    assert ops(model) == {"DequantizeLinear": 1, "Conv": 1}
    assert (model.graph.initializers["w"].const_value.numpy() == W).all()  # type: ignore[union-attr]


def test_further_channel_stands_only_ahead_of_a_conv_that_pads(parse: Parse) -> None:
    for call, pads in ((CONVS["padded"], 1), (CONVS["inside"], 0)):
        text = f"g (float[N,3,9,7] x) => (float[N,4,h,w2] y) {{ y = {call} }}"
        model = parse(text, {"w": W, "b": B})
        TakePixels("x", meaning(IMAGENET))(model)
        assert ops(model)["Pad"] == pads


RAW = QuantizedIO(Meaning.PIXELS, "uint8", (1.0,), (0.0,))
MEAN, STD = (np.array(n, np.float32).reshape(3, 1, 1) for n in (IMAGENET.mean, IMAGENET.std))
NORM = {f"n{i}": RNG.uniform(1, 2, 3).astype(np.float32) for i in range(4)}
FRONTS: dict[str, tuple[str, str, Feeds]] = {
    "divide, subtract, divide": (
        "float",
        "a = Div(x, k) d = Sub(a, m) c = Div(d, s)",
        {"k": np.array(255, np.float32), "m": MEAN, "s": STD},
    ),
    "cast of bytes": (
        "uint8",
        "a = Cast<to=1>(x) d = Mul(k, a) c = Sub(d, m)",
        {"k": np.array(1 / 255, np.float32), "m": MEAN},
    ),
    "constant minus pixel": ("float", "c = Sub(k, x)", {"k": np.array(255, np.float32)}),
    "batch norm": ("float", "c = BatchNormalization(x, n0, n1, n2, n3)", NORM),
}


@pytest.mark.parametrize("front", FRONTS)
def test_normalization_in_the_graph_is_folded(front: str, parse: Parse, run: Run) -> None:
    dtype, nodes, weights = FRONTS[front]
    model = parse(
        f"g ({dtype}[N,3,9,7] x) => (float[N,4,h,w2] y) "
        f"{{ {nodes} y = Conv<pads=[1,1,1,1]>(c, w, b) }}",
        {"w": W, "b": B, **weights},
    )
    (before,) = run(model, {"x": P if dtype == "uint8" else P.astype(np.float32)})
    TakePixels("x", RAW)(model)
    (after,) = run(model, {"x": P})
    assert_close(after, before)
    assert not ops(model).keys() & {"Cast", "Sub", "Mul", "Div", "BatchNormalization"}


def test_channels_last_are_folded_behind_the_transpose(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float[N,9,7,3] x) => (float[N,4,h,w2] y) "
        "{ a = Sub(x, m) t = Transpose<perm=[0,3,1,2]>(a) c = Div(t, s) "
        "y = Conv<pads=[1,1,1,1]>(c, w) }",
        {"w": W, "m": 255 * MEAN.reshape(3), "s": STD},
    )
    p = np.ascontiguousarray(P.transpose(0, 2, 3, 1))
    (before,) = run(model, {"x": p.astype(np.float32)})
    TakePixels("x", RAW)(model)
    (after,) = run(model, {"x": p})
    assert_close(after, before)
    assert ops(model) == {"Pad": 1, "DequantizeLinear": 1, "Transpose": 1, "Conv": 1}


@pytest.mark.parametrize(
    "call",
    ["Relu(x)", "Conv<pads=[1,1,1,1], group=3>(x, v)", "Conv(x, x)"],
    ids=["Relu", "groups", "weight"],
)
def test_normalization_that_no_conv_can_take_stays_with_a_note(
    call: str, parse: Parse, run: Run
) -> None:
    model = parse(
        f"g (float[N,3,9,7] x) => (float[n,c,h,w2] y) {{ y = {call} }}",
        {"v": RNG.normal(size=(3, 1, 3, 3)).astype(np.float32)},
    )
    (before,) = run(model, {"x": normalized(P, IMAGENET)})
    taken = TakePixels("x", meaning(IMAGENET))
    taken(model)
    (after,) = run(model, {"x": P})
    assert_close(after, before)
    assert "stays as float nodes" in taken.notes[0]
    assert [node.op_type for node in model.graph][:3] == ["DequantizeLinear", "Mul", "Add"]


def test_dead_rows_of_a_weight_do_not_matter(parse: Parse, run: Run) -> None:
    weight = W.copy()
    weight[1] = 0
    model = parse(
        "g (float[N,3,9,7] x) => (float[N,4,h,w2] y) { y = Conv<pads=[1,1,1,1]>(x, w) }",
        {"w": weight},
    )
    (before,) = run(model, {"x": normalized(P, IMAGENET)})
    TakePixels("x", meaning(IMAGENET))(model)
    assert_close(run(model, {"x": P})[0], before)
