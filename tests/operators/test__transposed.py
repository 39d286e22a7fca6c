from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operators._transposed import TransposedAxis, phase_axis, transposed_axes


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
