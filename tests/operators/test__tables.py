from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import INT8, INT16, UINT8, QDType
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Ints, NodeCall, NodePlan, Site
from onnxq.operators._tables import (
    DIRECT,
    all_integers,
    is_tabulable,
    look_up,
    look_up_each,
    look_up_pairs,
    lower_table,
    requantize_integers,
    rounded,
    tabulate,
)
from onnxq.qparams import IntArray, per_tensor
from tests.operators import builder


@pytest.mark.parametrize(("dtype", "low"), [(UINT8, 0), (INT8, -128)])
def test_every_integer_is_looked_up_at_its_place(dtype: QDType, low: int) -> None:
    every = all_integers(dtype)
    assert (every[0], every[-1], len(every)) == (low, low + 255, 256)
    x = every.astype(dtype.storage).reshape(16, 16)
    np.testing.assert_array_equal(look_up(every * 2, x, dtype), x.astype(np.int32) * 2)


def test_wide_types_are_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match="choose uint8 or int8"):
        all_integers(INT16)


def difference(a: Ints, b: Ints) -> np.ndarray:
    return np.asarray(a - b)


def test_pairs_of_types_and_shapes_that_broadcast() -> None:
    a = np.array([[0], [255]], np.uint8)
    b = np.array([-128, 0, 127], np.int8)
    got = look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, INT8))
    assert got.tolist() == [[128, 0, -127], [383, 255, 128]]


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    a, b = np.zeros(2, np.uint8), np.zeros(3, np.uint8)
    with pytest.raises(ShapeError, match="Sub: shape mismatch"):
        look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, UINT8))


@pytest.mark.parametrize("size", [100, 200])
def test_large_arrays_of_pairs_give_what_small_ones_do(size: int) -> None:
    random = np.random.default_rng(0)
    a = random.integers(0, 256, (size, size)).astype(np.uint8)
    b = random.integers(-128, 128, (1, size)).astype(np.int8)
    assert (size * size > DIRECT) == (size > 100)
    got = look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, INT8))
    assert np.array_equal(got, a.astype(np.int32) - b)


def test_integers_are_the_same_array_where_qparams_are_equal() -> None:
    x = np.array([0, 7, 255], np.uint8)
    p, q = per_tensor(0.5, 7, UINT8), per_tensor(1.0, 0, UINT8)
    assert requantize_integers(x, p, p) is x
    assert requantize_integers(x, p, q).tolist() == [0, 0, 124]


def test_nan_and_infinity_have_integers() -> None:
    p = per_tensor(1.0, 1, UINT8)
    with np.errstate(all="raise"):
        table = tabulate(np.log, p, p)
    assert table[:4].tolist() == [0, 0, 1, 2]


def test_functions_round_to_float32_once() -> None:
    got = rounded(lambda x: x / 3, np.array([1], np.float32))
    assert got.dtype == np.float32
    assert got[0] == np.float32(1 / 3)


def test_only_eight_bits_have_tables() -> None:
    narrow, wide = per_tensor(1.0, 0, UINT8), per_tensor(1.0, 0, INT16)
    assert is_tabulable(NodePlan((narrow, None), (narrow,)))
    assert not is_tabulable(NodePlan((narrow,), (wide,)))
    with pytest.raises(UnsupportedError, match="8 bits"):
        tabulate(np.sin, wide, wide)


Sizes = list[int | str]


def looked_up(
    x: IntArray, table: IntArray, sizes: Sizes, dtype: QDType = UINT8
) -> npt.NDArray[np.generic]:
    """Output of ONNX Runtime for the table, the operand's shape being declared as `sizes`."""
    qparams = per_tensor(1.0, 0, dtype)
    reals = ir.val("real", ir.DataType.FLOAT, sizes)
    node = ir.node("Elu", [reals], name="n")
    tape, integers = Tape(), ir.val("x", ir.DataType[dtype.onnx], sizes)
    (y,) = lower_table(Site(tape, node, [integers], NodePlan((qparams,), (qparams,))), table)
    y.name = "y"
    graph = ir.Graph(
        [integers], [y], nodes=tape.nodes, initializers=tape.initializers, opset_imports={"": 13}
    )
    session = builder.session(ir.Model(graph, ir_version=builder.IR_VERSION))
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("dtype", [UINT8, INT8])
@pytest.mark.parametrize(
    "sizes", [[2, 128], ["N", 128], ["N", "M"], [2, "M"]], ids=lambda s: str(s)
)
def test_every_integer_finds_its_entry_whatever_is_known_of_the_shape(
    sizes: Sizes, dtype: QDType
) -> None:
    table = np.random.default_rng(0).permutation(256).astype(np.uint8).view(dtype.storage)
    x = np.arange(dtype.qmin, dtype.qmax + 1).astype(dtype.storage)
    got = looked_up(x.reshape(2, 128), table, sizes, dtype)
    assert np.array_equal(got, table.reshape(2, 128))


@pytest.mark.parametrize("sizes", [[0, 3], ["N", 3]], ids=lambda s: str(s))
def test_an_empty_batch_stays_empty(sizes: Sizes) -> None:
    x = np.zeros((0, 3), np.uint8)
    assert looked_up(x, np.zeros(256, np.uint8), sizes).shape == (0, 3)


@pytest.mark.parametrize("dtype", [UINT8, INT8])
def test_each_place_has_its_table(dtype: QDType) -> None:
    random = np.random.default_rng(0)
    tables = random.integers(dtype.qmin, dtype.qmax + 1, (3, 1, 256)).astype(dtype.storage)
    x = random.integers(dtype.qmin, dtype.qmax + 1, (2, 3, 5)).astype(dtype.storage)
    wanted = [[tables[c, 0, x[n, c].astype(int) - dtype.qmin] for c in range(3)] for n in range(2)]
    assert np.array_equal(looked_up(x, tables, ["N", 3, 5], dtype), wanted)
    assert np.array_equal(look_up_each(tables, x, per_tensor(1.0, 0, dtype)), wanted)


def test_rows_are_for_threads_and_divide_the_elements() -> None:
    known: list[tuple[Sizes, int]] = [
        ([1, 4, 4], 16), (["N", 3, 4], 4), (["N", 7], 1), ([0, 3], 16)
    ]  # fmt: skip
    for sizes, rows in known:
        node = ir.node("Elu", [ir.val("x", ir.DataType.FLOAT, sizes)], name="n")
        plan, tape = NodePlan(*((per_tensor(1.0, 0, UINT8),),) * 2), Tape()
        lower_table(Site(tape, node, [ir.val("c")], plan), np.zeros(256, np.uint8))
        table = next(v for v in tape.initializers if v.name == "n_table")
        assert table.shape == (rows, 256)
