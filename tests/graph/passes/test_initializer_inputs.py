from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.passes.unused import RemoveInitializersFromInputs

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


def test_a_weight_that_is_listed_as_input_is_an_input_no_more(parse: Parse) -> None:
    model = parse(
        "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", {"w": np.ones(2, "f")}
    )
    assert RemoveInitializersFromInputs()(model).modified
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert list(model.graph.initializers) == ["w"]
    assert not RemoveInitializersFromInputs()(model).modified
