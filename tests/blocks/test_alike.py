"""Raw data: what products read of it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.blocks.alike import raw_tensors
from onnxq.blocks.rtn import Nearest
from onnxq.in_blocks.block_spec import BlockSpec
from tests.blocks.block_models import weight


def _model() -> ir.Model:
    return ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[N, 3, 4] x) => (float[N, 12] y)
        <float[1] mean = {0.5}, int64[2] shape = {-1, 12}, float[12] one =
          {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> {
            centred = Sub (x, mean)
            rows = Reshape (centred, shape)
            normed = LayerNormalization <axis = -1> (rows, one)
            y = Add (normed, rows)
        }
        """
    )


def test_what_is_moved_and_shifted_is_raw_and_what_is_normalized_is_not() -> None:
    raw = raw_tensors(_model())
    assert {"x", "centred", "rows"} <= raw
    assert not {"normed", "y"} & raw


def test_sums_of_errors_are_smaller_where_inputs_are_alike() -> None:
    w, spec = weight(64, 64), BlockSpec(4, 32)
    apart, together = (
        np.square((Nearest(alike=a)(w, spec).reals - w).sum(1)).mean() for a in (0.0, 1.0)
    )
    assert together < apart / 2
