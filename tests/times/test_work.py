from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.sizes import sizes_of
from onnxq.times import Work, work_of

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
IMAGE = "g (float[N,32,8,8] x) => (float[] y)"


def first_work(text: str, **weights: Array) -> Work | None:
    """Work of the first node, for a batch of one."""
    proto = onnx.parser.parse_model(HEAD + text)
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = ir.from_proto(proto)
    shape = [size if isinstance(size, int) else 1 for size in model.graph.inputs[0].shape or ()]
    return work_of(model.graph.node(0), sizes_of(model, {"x": tuple(shape)}))


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("shape", "attributes", "kind", "products"),
    [
        ((64, 32, 1, 1), "group = 1", "pointwise", 64 * 64 * 32),
        ((64, 32, 3, 3), "pads = [1, 1, 1, 1]", "dense", 64 * 64 * 32 * 9),
        ((32, 1, 3, 3), "pads = [1, 1, 1, 1], group = 32", "depthwise", 64 * 32 * 9),
        ((32, 16, 1, 1), "group = 2", "grouped", 64 * 32 * 16),
        ((24, 32, 1, 1), "group = 1", "pointwise", 64 * 32 * 32),  # two blocks of 16
    ],
)
def test_convolutions_are_told_apart_by_their_weight(
    shape: tuple[int, ...], attributes: str, kind: str, products: int
) -> None:
    found = first_work(f"{IMAGE} {{ y = Conv <{attributes}> (x, w) }}", w=zeros(*shape))
    pieces = 64 * int(np.prod(shape[2:])) * (2 if kind == "grouped" else 1)
    sizes = 2048, 64 * shape[0], int(np.prod(shape)), products, pieces
    assert found == Work("Conv", kind, *sizes)


def test_a_first_convolution_reads_few_channels() -> None:
    text = "g (float[N,3,8,8] x) => (float[] y) { y = Conv(x, w) }"
    found = first_work(text, w=zeros(16, 3, 3, 3))
    assert found is not None
    assert found.kind == "first"


def test_a_product_is_m_by_k_by_n() -> None:
    text = "g (float[N,5,8] x) => (float[] y) { y = MatMul(x, w) }"
    wanted = Work("MatMul", "", 5 * 8, 5 * 6, 8 * 6, 5 * 8 * 6)
    assert first_work(text, w=zeros(8, 6)) == wanted


def test_a_product_of_activations_has_no_weights() -> None:
    text = "g (float[N,5,8] x) => (float[] y) { y = MatMul(x, x) }"
    square = text.replace("5,8", "8,8")
    wanted = Work("MatMul", "activations", 2 * 64, 64, 0, 512)
    assert first_work(square) == wanted


def test_a_recurrent_node_takes_step_after_step() -> None:
    text = "g (float[7,1,4] x) => (float[] y) { y = LSTM <hidden_size = 3> (x, w, r) }"
    weights = 12 * 4 + 12 * 3
    wanted = Work("LSTM", "", 28, 21, weights, 7 * weights, 7)
    assert first_work(text, w=zeros(1, 12, 4), r=zeros(1, 12, 3)) == wanted


def test_sums_of_rows_are_counted() -> None:
    text = "g (float[N,5,8] x) => (float[] y) { y = Softmax <axis = -1> (x) }"
    assert first_work(text) == Work("Softmax", "", 40, 40, rows=5)


def test_elements_under_windows_are_counted() -> None:
    text = f"{IMAGE} {{ y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }}"
    assert first_work(text) == Work("MaxPool", "", 2048, 512, products=2048)


def test_what_is_taken_counts_and_in_how_many_pieces() -> None:
    shuffle = first_work(f"{IMAGE} {{ y = Gather <axis = 1> (x, i) }}", i=np.arange(32))
    one = first_work(f"{IMAGE} {{ y = Gather <axis = 3> (x, i) }}", i=np.array(0))
    assert shuffle == Work("Gather", "", 2048, 2048, rows=32)
    assert one == Work("Gather", "", 256, 256, rows=256)


def test_operands_that_are_repeated_are_another_kind() -> None:
    equal = first_work(f"{IMAGE} {{ y = Mul(x, x) }}")
    gate = first_work(f"{IMAGE} {{ y = Mul(x, c) }}", c=zeros(1, 32, 1, 1))
    scalar = first_work(f"{IMAGE} {{ y = Mul(x, c) }}", c=zeros(1))
    assert [each and each.kind for each in (equal, gate, scalar)] == ["", "repeated", ""]


def test_rows_and_columns_that_are_summed_are_two_kinds() -> None:
    last = first_work(f"{IMAGE} {{ y = ReduceMean(x, axes) }}", axes=np.array([-1]))
    both = first_work(f"{IMAGE} {{ y = ReduceMean(x, axes) }}", axes=np.array([2, 3]))
    assert [each and each.kind for each in (last, both)] == ["rows", ""]


def test_unknown_sizes_have_no_work() -> None:
    text = "g (float[5] x) => (int64[1,K] y) { y = NonZero(x) }"
    assert first_work(text) is None


def test_a_first_result_of_unknown_size_that_nobody_reads_has_no_work() -> None:
    x = ir.Value(name="x")
    node = ir.node("Loop", [x], num_outputs=2)
    values, result = node.outputs
    values.name, result.name = "values", "result"
    ir.Graph([x], [result], nodes=[node])
    assert work_of(node, {"x": (2,), "result": (2,)}) is None


def test_a_first_result_that_nobody_reads_has_no_size() -> None:
    found = first_work(
        "g (float[N,8] x) => (float[] y) { unread, i = TopK <axis = 1> (x, k) "
        "y = Cast <to = 1> (i) }",
        k=np.array([2], np.int64),
    )
    assert found is None or found.operator == "TopK"


@pytest.mark.parametrize(
    ("call", "axes"),
    [
        ("Flatten(x)", [0]),
        ("Squeeze(x)", [0]),
        ("Unsqueeze(x, w)", [0]),
        ("Reshape(x, w)", [1, 2048]),
    ],
)
def test_another_shape_of_the_same_elements_is_one_work(call: str, axes: list[int]) -> None:
    found = first_work(f"{IMAGE} {{ y = {call} }}", w=np.array(axes))
    assert found == Work("Reshape", "", 2048, 2048)
