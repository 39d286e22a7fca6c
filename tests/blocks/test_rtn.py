"""Round to nearest in blocks."""

from __future__ import annotations

import numpy as np

from onnxq.blocks.rtn import Nearest
from onnxq.in_blocks.block_spec import BlockSpec
from tests.blocks.block_models import weight


def test_no_neighbouring_code_is_nearer() -> None:
    w = weight(8, 64)
    made = Nearest()(w, BlockSpec(4, 32))
    scale = np.repeat(made.scale, 32, axis=1)
    inside = (made.codes > 0) & (made.codes < made.spec.most)
    # half a step, and what float32 leaves of it
    assert (np.abs(made.reals - w)[inside] <= 0.5001 * scale[inside]).all()
