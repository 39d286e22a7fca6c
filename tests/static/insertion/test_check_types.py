from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

from onnxq.errors import UnsupportedError
from onnxq.observers import (
    MinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    ObserverSpec,
    PerChannelMinMaxObserver,
)
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import images, model, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.static.prepared import Prepared

WEIGHT = NarrowRangeObserver.with_args()


def network(middle: str = "Relu", *extra: str) -> onnx.ModelProto:
    """y = Conv(middle(Conv(x)))."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first"),
        helper.make_node(middle, ["a", *extra], ["m"], "middle"),
        helper.make_node("Conv", ["m", "w2"], ["y"], "last"),
    ]
    constants = {
        "w1": weights(1, 4, 3, 1, 1),
        "w2": weights(2, 4, 4, 1, 1),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "low": np.array(0, np.float32),
        "six": np.array(6, np.float32),
    }
    used = {k: v for k, v in constants.items() if k in ("w1", "w2", *extra)}
    return model(nodes, used, {"x": ["N", 3, 8, 8]})


def prepared(
    activation: ObserverSpec, weight: ObserverSpec = WEIGHT, source: onnx.ModelProto | None = None
) -> Prepared:
    return prepare(source or network(), QConfigMapping(QConfig(activation, weight)), "x86-vnni")


def minmax(dtype: str, scheme: str = "per_tensor_affine") -> ObserverSpec:
    return MinMaxObserver.with_args(dtype=dtype, qscheme=scheme)


def loads(made: Prepared) -> bool:
    statistics = calibrate(made, [{"x": images(1)}])
    proto = ir.to_proto(rewrite(made, plan(made, statistics)))
    onnxruntime.InferenceSession(proto.SerializeToString())
    return True


@pytest.mark.parametrize("dtype", ["uint4", "int4", "uint2", "int2", "int32"])
def test_activation_types_without_kernels_are_refused(dtype: str) -> None:
    with pytest.raises(UnsupportedError, match=f"tensor '.*{dtype} activations.*wanted uint8"):
        prepared(minmax(dtype))


def test_a_scale_per_channel_of_activations_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="one scale per activation tensor"):
        prepared(PerChannelMinMaxObserver.with_args(ch_axis=1))


@pytest.mark.parametrize("spec", [minmax("int32"), NoopObserver.with_args()])
def test_weight_types_without_kernels_are_refused(spec: ObserverSpec) -> None:
    with pytest.raises(UnsupportedError, match=r"Conv 'first': .*weight; ONNX Runtime runs uint8"):
        prepared(minmax("uint8"), spec)


def test_eight_bits_are_nothing_to_note() -> None:
    assert prepared(minmax("uint8")).notes == ()


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_sixteen_bits_load_and_are_noted(dtype: str) -> None:
    made = prepared(minmax(dtype))
    assert any(re.search(f"{dtype} activations: .*in float", note) for note in made.notes)
    assert loads(made)


def test_weights_of_sixteen_bits_load_and_are_noted() -> None:
    made = prepared(minmax("uint8"), minmax("int16", "per_tensor_symmetric"))
    assert any(re.search("int16 weights: .*'first' and 1 more", note) for note in made.notes)
    assert loads(made)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_weights_of_few_bits_are_nothing_to_note(dtype: str) -> None:
    made = prepared(minmax("uint8"), minmax(dtype))
    assert made.notes == ()
    assert loads(made)


def test_a_relu_on_symmetric_sixteen_bits_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="tensor 'm': a Relu or Clip on symmetric int16"):
        prepared(minmax("int16", "per_tensor_symmetric"))


def test_a_plain_operator_on_sixteen_bits_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no Pad on uint16 integers .*'middle'|Pad 'middle'"
    ):
        prepared(minmax("uint16"), source=network("Pad", "pads"))


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_a_clip_on_sixteen_bits_becomes_the_range_of_the_integers(dtype: str) -> None:
    made = prepared(minmax(dtype), source=network("Clip", "low", "six"))
    assert loads(made)
    statistics = calibrate(made, [{"x": 100 * images(1)}])
    planned = plan(made, statistics)
    assert planned.integer_bounds == {}
    assert planned.tensors["m"].scale == np.float32(6 / 65535)
