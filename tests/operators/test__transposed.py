from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.tape import Tape

from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operators._transposed import TransposedAxis, interleaved, phase_axis, transposed_axes
from onnxq.qparams import per_tensor
from tests.operators import builder


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    taps=st.integers(1, 6),
    stride=st.integers(1, 5),
    dilation=st.integers(1, 3),
    begin=st.integers(0, 8),
    end=st.integers(0, 8),
    extra=st.integers(0, 3),
    size=st.integers(1, 6),
)
def test_phases_give_the_transposed_convolution(
    taps: int, stride: int, dilation: int, begin: int, end: int, extra: int, size: int
) -> None:
    growth = extra + dilation * (taps - 1) + 1 - stride - begin - end
    axis = TransposedAxis(taps, stride, dilation, begin, growth)
    if axis.out(size) < 1:
        return
    x, w = np.arange(1, size + 1), np.arange(1, taps + 1) ** 2
    wanted = np.zeros(axis.out(size), int)
    for i, k in np.ndindex(size, taps):
        place = i * stride + k * dilation - begin
        if 0 <= place < len(wanted):
            wanted[place] += x[i] * w[k]

    phases = phase_axis(axis)
    assert min(*phases.pads, *phases.crop) >= 0
    kernels = np.zeros((stride, (phases.taps - 1) * phases.dilation + 1), int)
    for k, (phase, tap) in enumerate(phases.place):
        kernels[phase, tap * phases.dilation] += w[k]
    padded = np.pad(x, phases.pads)
    z = np.stack([np.correlate(padded, kernel, "valid") for kernel in kernels], axis=1)
    assert len(z) == size + phases.windows
    front, behind = phases.crop
    flat = z.ravel()
    assert np.array_equal(flat[front : len(flat) - behind], wanted)


def test_same_padding_follows_from_stride_times_size() -> None:
    upper, lower = (
        transposed_axes(
            NodeCall("op", (), attributes={"strides": [3], "auto_pad": f"SAME_{side}"}), [5], [4]
        )[0]
        for side in ("UPPER", "LOWER")
    )
    assert upper.out(5) == lower.out(5) == 15
    assert (upper.begin, lower.begin) == (0, 1)


def test_output_shape_may_hold_batch_and_channels() -> None:
    short = transposed_axes(
        NodeCall("op", (), attributes={"strides": [2], "output_shape": [10]}), [5], [3]
    )
    assert (
        transposed_axes(
            NodeCall("op", (), attributes={"strides": [2], "output_shape": [1, 3, 10]}), [5], [3]
        )
        == short
    )


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"strides": [2, 2]}, "strides"),
        ({"pads": [1]}, "pads"),
        ({"output_padding": [1, 1]}, "output_padding"),
        ({"auto_pad": "SAME"}, "auto_pad"),
        ({"pads": [4, 4]}, "-1 elements"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(
    attributes: dict[str, list[int] | str], match: str
) -> None:
    with pytest.raises(ShapeError, match=match):
        transposed_axes(NodeCall("op", (), attributes=attributes), [5], [3])


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
