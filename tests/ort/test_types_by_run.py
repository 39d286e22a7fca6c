"""One run on ones tells types and shapes, in branches too."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.errors import ModelError, UnsupportedError
from onnxq.ort.types_by_run import types_by_run
from tests.ort.small_models import parsed


def test_types_and_shapes_come_from_one_run() -> None:
    model = parsed(
        """
        g (float[n,3] x, bool c) => (y) {
          s = Shape(x)
          y = If (c) <
            then_branch = t () => (p) { p = Neg(x) },
            else_branch = e () => (o) { o = Exp(x) }
          >
        }
        """
    )
    assert types_by_run(model, ["x", "s", "y", "p", "o"]) == {
        "x": (ir.DataType.FLOAT, (1, 3)),
        "s": (ir.DataType.INT64, (2,)),
        "y": (ir.DataType.FLOAT, (1, 3)),
        "p": (ir.DataType.FLOAT, (1, 3)),
    }


def test_every_tensor_of_the_main_graph_is_typed_by_default() -> None:
    model = parsed(
        """
        g (float[n,3] x) => (z) {
          s = SequenceConstruct(x, x)
          i = Constant<value = int64 {0}>()
          y = SequenceAt(s, i)
          z = Shape(y)
        }
        """
    )
    assert types_by_run(model) == {
        "i": (ir.DataType.INT64, ()),
        "y": (ir.DataType.FLOAT, (1, 3)),
        "z": (ir.DataType.INT64, (2,)),
    }


def test_a_model_that_cannot_run_on_ones_is_an_error() -> None:
    model = parsed("g (float[2,3] x, int64[2] n) => (y) { y = Reshape(x, n) }")
    with pytest.raises(ModelError, match="types are not found by a run on inputs of ones"):
        types_by_run(model, ["y"])


def test_types_inside_a_loop_are_not_to_be_had() -> None:
    model = parsed(
        """
        g (float[3] x, int64 n, bool c) => (float[3] y) {
          y = Loop (n, c, x) <body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] so) {
            co = Identity(ci)
            so = Neg(s)
          }>
        }
        """
    )
    with pytest.raises(UnsupportedError, match="Loop or Scan"):
        types_by_run(model, ["so"])


def test_feeds_take_the_place_of_ones() -> None:
    model = parsed("g (float[n,3] x) => (y) { y = Neg(x) }")
    found = types_by_run(model, ["y"], {"x": np.ones((4, 3), np.float32)})
    assert found == {"y": (ir.DataType.FLOAT, (4, 3))}


FIXED = """
    g (float[n,2] x) => (y) <float[3,1] c = {1,2,3}> {
      s = SequenceConstruct(x, x)
      i = Constant<value = int64 {0}>()
      first = SequenceAt(s, i)
      y = Concat<axis = 1>(first, c)
    }
"""


def test_a_size_of_the_batch_that_a_constant_fixes_is_tried() -> None:
    assert types_by_run(parsed(FIXED))["y"] == (ir.DataType.FLOAT, (3, 3))


PADDED = """
g (float[n,length] x) => (float[n,m] y)
<int64[4] pads = {0, 0, 0, 64}>
{
    padded = Pad <mode = "reflect"> (x, pads)
    y = Identity (padded)
}
"""


def test_lengths_that_a_padding_wants_are_tried() -> None:
    assert types_by_run(parsed(PADDED))["y"] == (ir.DataType.FLOAT, (1, 256 + 64))
