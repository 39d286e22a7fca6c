from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import pytest

from onnxq.ort import runtime
from scripts.make_imbalanced import CLIP_AT, SMALLEST_SCALE, imbalance

if TYPE_CHECKING:
    from pathlib import Path

CHANNELS = 8


def save_chain(path: Path) -> None:
    """expand 1x1 -> Clip(0, 6) -> depthwise 3x3; channel 0 of the clip's input is 7 or more."""
    rng = np.random.default_rng(0)
    w = np.abs(rng.normal(size=(CHANNELS, 2, 1, 1))).astype(np.float32) / 2
    b = np.array([7, *[0.5] * (CHANNELS - 1)], np.float32)
    d = rng.normal(size=(CHANNELS, 1, 3, 3)).astype(np.float32)
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        chain (float[N,2,4,4] image) => (float[N,{CHANNELS},4,4] y)
        <float low = {{0.0}}, float high = {{6.0}}> {{
            e = Conv(image, w, b)
            c = Clip(e, low, high)
            y = Conv<group={CHANNELS}, pads=[1, 1, 1, 1]>(c, d)
        }}"""
    )
    for name, array in (("w", w), ("b", b), ("d", d)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)


def weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    return {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(path).graph.initializer}


@pytest.fixture
def images() -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).uniform(0, 1, (16, 2, 4, 4)).astype(np.float32)


def test_the_function_stays_and_saturating_channels_are_left_alone(
    tmp_path: Path, images: npt.NDArray[np.float32]
) -> None:
    source, result = tmp_path / "chain.onnx", tmp_path / "imbalanced.onnx"
    save_chain(source)
    done = imbalance(source, result, images)
    assert (done.scaled, done.channels) == (CHANNELS - 1, CHANNELS)
    before, after = weights(source), weights(result)
    factors = after["b"] / before["b"]
    assert factors[0] == 1
    assert (factors[1:] < 1).all()
    assert (factors[1:] >= SMALLEST_SCALE).all()
    np.testing.assert_array_equal(after["d"][0], before["d"][0])
    with runtime.open_session(source) as a, runtime.open_session(result) as b:
        (wanted,), (got,) = a.run({"image": images}), b.run({"image": images})
    # a sum of 9 products of size <= 6 |d|, each of factors with up to 4 more roundings of 2^-24
    bound = 9 * 4 * 2.0**-24 * CLIP_AT * float(np.abs(before["d"]).max())
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=0, atol=bound)


def test_the_same_seed_gives_the_same_file(tmp_path: Path, images: npt.NDArray[np.float32]) -> None:
    save_chain(tmp_path / "chain.onnx")
    for name in ("a.onnx", "b.onnx"):
        imbalance(tmp_path / "chain.onnx", tmp_path / name, images)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
