from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.operator import NodePlan, Site
from onnxq.operators._lookup import lower_table
from onnxq.operators._tables import look_up_each
from onnxq.qparams import IntArray, per_tensor
from tests.operators import builder

Sizes = list[int | str]


def looked_up(
    x: IntArray, table: IntArray, sizes: Sizes, dtype: QDType = UINT8
) -> npt.NDArray[np.generic]:
    """What ONNX Runtime makes of the table, the operand's shape being declared as `sizes`."""
    qparams = per_tensor(1.0, 0, dtype)
    reals = ir.val("real", ir.DataType.FLOAT, sizes)
    node = ir.node("Elu", [reals], name="n")
    tape, codes = Tape(), ir.val("x", ir.DataType[dtype.onnx], sizes)
    (y,) = lower_table(Site(tape, node, [codes], NodePlan((qparams,), (qparams,))), table)
    y.name = "y"
    graph = ir.Graph(
        [codes], [y], nodes=tape.nodes, initializers=tape.initializers, opset_imports={"": 13}
    )
    session = builder.session(ir.Model(graph, ir_version=builder.IR_VERSION))
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("dtype", [UINT8, INT8])
@pytest.mark.parametrize(
    "sizes", [[2, 128], ["N", 128], ["N", "M"], [2, "M"]], ids=lambda s: str(s)
)
def test_every_code_finds_its_entry_whatever_is_known_of_the_shape(
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
