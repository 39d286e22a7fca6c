from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan
from onnxq.dynamic.dynamic_weights import with_one_scale
from onnxq.qconfig import per_channel_dynamic_qconfig
from onnxq.qparams import PerChannel, PerTensor, QParams, per_tensor


def weight(scales: list[float], limit: int = 127, zero_point: int = 0) -> DynamicWeightPlan:
    points = np.full(len(scales), zero_point, np.int8)
    qparams = QParams(np.array(scales, np.float32), points, INT8, PerChannel(1))
    return DynamicWeightPlan(1, "w", None, qparams, limit)


@pytest.mark.parametrize("smallest", [0.26, 0.5, 1.0])
def test_columns_of_like_size_get_the_largest_scale(smallest: float) -> None:
    found = with_one_scale(weight([1.0, smallest])).qparams
    assert found is not None
    assert found == per_tensor(1.0, 0, INT8)


@pytest.mark.parametrize(
    "kept",
    [
        weight([1.0, 0.25]),  # 127 / 4 integers would be left
        weight([1.0, 0.49], limit=64),
        weight([1.0, 1.0], zero_point=3),
        DynamicWeightPlan(1, "w", None, per_tensor(1.0, 0, INT8), 127),
        DynamicWeightPlan(1, "w", None, None),
    ],
    ids=["small column", "few integers", "zero point", "one scale", "half"],
)
def test_others_stay(kept: DynamicWeightPlan) -> None:
    assert with_one_scale(kept) is kept


def test_columns_of_zeros_lose_nothing() -> None:
    found = with_one_scale(weight([1.0, 2.0**-23])).qparams
    assert found is not None
    assert found.granularity == PerTensor()


def scale_of(model: onnx.ModelProto, **arguments: object) -> npt.NDArray[np.generic]:
    found = onnxq.quantize_dynamic(model, **arguments)  # type: ignore[arg-type]
    tensor = found.graph.initializers["w_scale"].const_value
    assert tensor is not None
    return tensor.numpy()


def linear(*rows: int | str) -> onnx.ModelProto:
    w = np.random.default_rng(0).uniform(-1, 1, (256, 128)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "m")],
        "matmul",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*rows, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*rows, 128])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_only_speed_asks_for_it_and_only_with_few_rows() -> None:
    assert scale_of(linear("rows")).shape == ()
    assert scale_of(linear(1)).shape == ()
    assert scale_of(linear(64)).shape == (128,)
    assert scale_of(linear("rows"), objective="size").shape == (128,)
    assert scale_of(linear("rows"), qconfig_spec=per_channel_dynamic_qconfig).shape == (128,)


@pytest.mark.parametrize(
    ("rows", "few"),
    [
        (("batch", 31), True),
        (("batch", 32), False),
        (("batch", 4, 8), False),
        ((2, "length"), False),  # 64 is assumed
        ((32, "length"), False),
    ],
)
def test_open_sizes_are_those_of_usual_inputs(rows: tuple[int | str, ...], few: bool) -> None:
    assert scale_of(linear(*rows)).shape == (() if few else (128,))
