from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operators._windows import BLOCK, Windows, blocks, geometry, pool_geometry, sliding

SPECS = st.fixed_dictionaries(
    {
        "size": st.integers(5, 12),  # the widest window is 2 * (3 - 1) + 1
        "kernel": st.integers(1, 3),
        "stride": st.integers(1, 4),
        "dilation": st.integers(1, 2),
        "before": st.integers(0, 2),
        "after": st.integers(0, 2),
        "ceil": st.integers(0, 1),
        "auto_pad": st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
    }
)


def out_by_onnx(attributes: dict[str, Any], size: int) -> int:
    """Number of windows by ONNX's own shape inference of MaxPool."""
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 1, size])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return int(inferred.graph.output[0].type.tensor_type.shape.dim[2].dim_value)


@given(SPECS)
@settings(max_examples=200, deadline=None)
def test_the_number_of_windows_is_that_of_onnx(spec: dict[str, Any]) -> None:
    attributes: dict[str, Any] = {
        "kernel_shape": [spec["kernel"]],
        "strides": [spec["stride"]],
        "dilations": [spec["dilation"]],
        "ceil_mode": spec["ceil"],
        "auto_pad": spec["auto_pad"],
    }
    if spec["auto_pad"] == "NOTSET":  # ONNX: pads are smaller than the kernel
        attributes["pads"] = [min(spec[side], spec["kernel"] - 1) for side in ("before", "after")]
    else:
        attributes["ceil_mode"] = 0  # ONNX: it is not used with auto_pad
    read = {k: v for k, v in attributes.items() if k != "kernel_shape"}
    made = geometry(NodeCall("MaxPool", (), attributes=read), [spec["size"]], [spec["kernel"]])
    assert made.out == (out_by_onnx(attributes, spec["size"]),)


@pytest.mark.parametrize(("mode", "begin"), [("SAME_UPPER", 0), ("SAME_LOWER", 1)])
def test_the_odd_element_of_padding_is_where_the_name_says(mode: str, begin: int) -> None:
    assert geometry(NodeCall("Conv", (), attributes={"auto_pad": mode}), [4], [2]).begin == (begin,)


def test_a_window_that_would_start_in_the_padding_behind_is_left_out() -> None:
    attributes: dict[str, Any] = {"strides": [3], "pads": [0, 1], "ceil_mode": 1}
    assert geometry(NodeCall("MaxPool", (), attributes=attributes), [3], [2]).out == (1,)
    assert geometry(NodeCall("MaxPool", (), attributes=attributes), [4], [2]).out == (2,)


@pytest.mark.parametrize(
    ("kernel", "attributes", "words"),
    [
        ([5], {}, "do not fit"),
        ([2, 2], {}, "1 spatial axes"),
        ([2], {"pads": [1]}, "1 spatial axes"),
        ([2], {"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
    ],
)
def test_what_onnx_does_not_allow_is_refused(
    kernel: list[int], attributes: dict[str, list[int] | str], words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        geometry(NodeCall("Conv", (), attributes=attributes), [4], kernel)


def test_windows_are_a_view_of_strided_and_dilated_taps() -> None:
    x = np.arange(7, dtype=np.uint8).reshape(1, 1, 7)
    view = sliding(x, Windows((2,), (2,), (3,), (0,), (2,)), 99)
    assert view.tolist() == [[[[0, 3], [2, 5]]]]
    assert np.shares_memory(view, x)


def test_padding_holds_the_fill() -> None:
    x = np.array([1, 2], np.uint8).reshape(1, 1, 2)
    view = sliding(x, Windows((2,), (1,), (1,), (1,), (3,)), 9)
    assert view.tolist() == [[[[9, 1], [1, 2], [2, 9]]]]


def test_blocks_cover_all_planes_in_order() -> None:
    size = BLOCK // 2
    x = np.arange(5, dtype=np.uint8).repeat(size).reshape(1, 5, size)
    windows = geometry(NodeCall("MaxPool", ()), [size], [1])
    found = list(blocks(x, windows))
    assert [part.shape[1] for _, part in found] == [2, 2, 1]
    assert np.array_equal(np.concatenate([part for _, part in found], axis=1), x)


def test_windows_along_one_axis_are_single_elements_along_the_others() -> None:
    made = Windows((3, 2), (2, 3), (1, 2), (1, 0), (4, 5)).only(0, (7, 9))
    assert made == Windows((3, 1), (2, 1), (1, 1), (1, 0), (4, 9))


def test_same_padding_of_pools_leaves_dilations_out_of_account() -> None:
    attributes: dict[str, Any] = {"auto_pad": "SAME_UPPER", "dilations": [2], "strides": [2]}
    assert geometry(NodeCall("Conv", (), attributes=attributes), [11], [3]).out == (6,)
    made = pool_geometry(NodeCall("MaxPool", (), attributes=attributes), [11], [3])
    assert (made.begin, made.out) == ((1,), (5,))


@pytest.mark.parametrize(("mode", "begin"), [("SAME_UPPER", -1), ("SAME_LOWER", 0)])
def test_same_padding_of_pools_is_negative_where_strides_skip_the_ends(
    mode: str, begin: int
) -> None:
    made = pool_geometry(
        NodeCall("MaxPool", (), attributes={"auto_pad": mode, "strides": [3]}), [9], [1]
    )
    assert made.begin == (begin,)
    x = np.arange(9, dtype=np.uint8).reshape(1, 1, 9)
    assert sliding(x, made, 0).ravel().tolist() == [-begin, 3 - begin, 6 - begin]
