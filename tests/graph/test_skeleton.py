from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.skeleton import BIG_BYTES, skeleton

if TYPE_CHECKING:
    from pathlib import Path

    from tests.graph.conftest import Parse


def test_big_weights_are_left_out_and_small_ones_stay(parse: Parse, tmp_path: Path) -> None:
    small, big = np.arange(4, dtype=np.float32), np.ones(BIG_BYTES // 4, np.float32)
    (tmp_path / "d").write_bytes(small.tobytes())
    model = parse(
        "g (float[4] x) => (float[4] y) { a = Add(x, s) y = Add(a, b) }", {"s": small, "b": big}
    )
    external = ir.ExternalTensor(
        "d", 0, 16, ir.DataType.FLOAT, shape=ir.Shape([4]), name="s", base_dir=tmp_path
    )
    model.graph.initializers["s"].const_value = external
    tensors = {t.name: t for t in skeleton(model).graph.initializer}
    assert tensors["s"].raw_data == small.tobytes()
    assert not tensors["b"].raw_data
    assert list(tensors["b"].dims) == [BIG_BYTES // 4]
    assert model.graph.initializers["s"].const_value is external
