from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import UINT8
from onnxq.operators._interleave import interleaved
from onnxq.operators._transposed import TransposedAxis, phase_axis
from onnxq.qparams import per_tensor
from tests.operators import builder


@pytest.mark.parametrize("sizes", [(2, 3, 4), (None, None, None)], ids=["known", "unknown"])
@pytest.mark.parametrize("strides", [(2, 3, 4), (1, 2, 1), (3, 1, 2)], ids=str)
def test_each_phase_gets_to_its_place(
    strides: tuple[int, int, int], sizes: tuple[int | None, ...]
) -> None:
    axes = [phase_axis(TransposedAxis(1, s, 1, 0, 0)) for s in strides]
    groups, each, count = 2, 3, int(np.prod(strides))
    shape = (1, groups, *reversed(strides), each, 2, 3, 4)
    x = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    # (n, group, phase d, h, w (last axis first), output, D, H, W) -> (n, g, o, D, d, H, h, W, w)
    wanted = x.transpose(0, 1, 5, 6, 4, 7, 3, 8, 2)
    wanted = wanted.reshape(
        1, groups * each, *(n * s for n, s in zip((2, 3, 4), strides, strict=True))
    )
    flat = x.reshape(1, groups * count * each, 2, 3, 4)

    node = ir.node("ConvTranspose", [ir.val("float_x")], name="t")
    tape = Tape()
    value = tape.op("Identity", [ir.val("in0", ir.DataType.UINT8, flat.shape)])
    source = value.producer()
    assert source is not None
    (start,) = source.inputs
    assert start is not None
    y = interleaved(tape, node, value, axes, (groups, count, each), sizes, per_tensor(1, 0, UINT8))
    y.name = "out0"
    graph = ir.Graph(
        [start],
        [y],
        nodes=tape.nodes,
        initializers=tape.initializers,
        opset_imports={"": 21},
        name="interleave",
    )
    session = builder.session(ir.Model(graph, ir_version=builder.IR_VERSION))
    assert np.array_equal(session.run(None, {"in0": flat})[0], wanted)
