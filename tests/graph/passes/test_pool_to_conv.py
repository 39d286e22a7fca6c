from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.pool_to_conv import PoolToConv
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Parse, Run

X = np.random.default_rng(0).normal(size=(2, 3, 8, 7)).astype(np.float32)
PADDED = "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]"


def model_of(parse: Parse, attributes: str, x: str = "float[N,3,8,7] x") -> ir.Model:
    return parse(f"g ({x}) => (float y) {{ y = AveragePool<{attributes}>(x) }}", None, 21)


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape=[2, 3], strides=[2, 1]",
        f"{PADDED}, count_include_pad=1",
        "kernel_shape=[2, 3], dilations=[2, 1]",
        'kernel_shape=[2, 3], auto_pad="VALID"',
    ],
)
def test_a_pool_whose_taps_all_count_is_a_depthwise_convolution_of_the_same_value(
    attributes: str, parse: Parse, run: Run
) -> None:
    model = model_of(parse, attributes)
    (before,) = run(model, {"x": X})
    assert PoolToConv()(model).modified
    assert op_types(model) == ["Conv"]
    assert model.graph.node(0).attributes.get_int("group") == 3
    (after,) = run(model, {"x": X})
    # 9 numbers below 4 are summed in two orders, and multiplied in place of divided
    np.testing.assert_allclose(after, before, rtol=0, atol=2 * 9 * 4 * 2**-24)
    assert not PoolToConv()(model).modified


def test_a_window_over_all_is_a_global_pool(parse: Parse, run: Run) -> None:
    model = model_of(parse, "kernel_shape=[8, 7]")
    (before,) = run(model, {"x": X})
    PoolToConv()(model)
    assert op_types(model) == ["GlobalAveragePool"]
    np.testing.assert_allclose(run(model, {"x": X})[0], before, rtol=0, atol=56 * 4 * 2**-24)


@pytest.mark.parametrize(
    ("attributes", "x"),
    [
        (PADDED, "float[N,3,8,7] x"),
        ("kernel_shape=[3, 3], ceil_mode=1", "float[N,3,8,7] x"),
        ('kernel_shape=[3, 3], auto_pad="SAME_UPPER"', "float[N,3,8,7] x"),
        ("kernel_shape=[2, 2]", "float[N,C,8,7] x"),
        ("kernel_shape=[2, 2]", "float[N,1,8,7] x"),
        ("kernel_shape=[2, 2, 2]", "float[N,3,8,7,6] x"),
        ("kernel_shape=[1, 1], strides=[2, 2]", "float[N,3,8,7] x"),
    ],
    ids=["padding does not count", "ceil", "same", "unknown channels", "one", "volume", "one tap"],
)
def test_other_pools_stay(attributes: str, x: str, parse: Parse) -> None:
    assert not PoolToConv()(model_of(parse, attributes, x)).modified


def test_pools_that_a_qconfig_speaks_of_stay(parse: Parse) -> None:
    assert not PoolToConv(["AveragePool"])(model_of(parse, "kernel_shape=[2, 2]")).modified
