from __future__ import annotations

import pytest

import onnxq
from onnxq.survey.survey import layers_on_machines
from tests.survey.pair import BATCH, pair


def test_portable_models_are_exact_everywhere() -> None:
    found = layers_on_machines(pair().target)
    assert found.layers == ()
    assert "the same on all machines" in found.said


@pytest.mark.nightly
def test_layers_that_saturate_somewhere_are_named_with_their_pairs() -> None:
    fast = onnxq.quantize(pair().source, [BATCH], target="x86-vnni", check=onnxq.Check.NONE)
    found = layers_on_machines(fast)
    assert found.layers
    cells = {name: column.cells for column in found.columns for name in column.names}
    assert any("can differ" in cell for cell in cells["x86-avx2"])
    assert not any(cells["x86-vnni"])
