"""Dynamic models whose verdict is low: the nodes that cost most go back to float."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from tests.dynamic_models import parsed

if TYPE_CHECKING:
    import onnx

    from onnxq.quantized.verdict import Verdict
    from tests.dynamic_models import F32

WIDTH, ROWS = 256, 64


def samples() -> dict[str, F32]:
    """Numbers near 1000, which differ by 1."""
    rng = np.random.default_rng(2)
    return {"x": (1000 + rng.standard_normal((ROWS, WIDTH))).astype(np.float32)}


def collapsing(*, last: str = "y = MatMul(b, v)", kind: str = "float") -> onnx.ModelProto:
    """Two linear layers; the first takes differences, for which its inputs are too coarse."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((WIDTH, WIDTH))
    first = ((w - w.mean(axis=0)) / 16).astype(np.float32)
    second = (rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32)
    text = f"""m (float[N,{WIDTH}] x) => ({kind}[N,{WIDTH}] y) {{
        [first] a = MatMul(x, w) b = Relu(a) [second] {last} }}"""
    return parsed(text, {"w": first, "v": second})


def quantized(model: onnx.ModelProto, **options: object) -> Verdict:
    check = onnxq.Check(samples(), **options)  # type: ignore[arg-type]
    made = onnxq.quantize_dynamic(model, check=check)
    assert made.verdict is not None
    return made.verdict


def test_what_costs_most_goes_to_float_and_the_rest_stays() -> None:
    with pytest.warns(UserWarning, match="keeps"):
        broken = quantized(collapsing(), repair=None)
    verdict = quantized(collapsing())
    assert broken.worst_db < 15 < verdict.worst_db
    assert verdict.integer_nodes
    (note,) = [note for note in verdict.notes if note.startswith("repaired, ")]
    assert note.endswith("by float: first")


def test_integers_that_changed_are_repaired() -> None:
    model = collapsing(last="c = MatMul(b, v) y = ArgMax<axis=1, keepdims=0>(c)", kind="int64")
    del model.graph.output[0].type.tensor_type.shape.dim[1]
    broken, verdict = quantized(model, repair=None), quantized(model)
    before, after = broken.outputs[0].agreement, verdict.outputs[0].agreement
    assert before is not None
    assert after is not None
    assert before < 0.9 < after
    assert verdict.integer_nodes


def test_a_model_all_of_whose_integers_cost_too_much_is_left_and_that_is_said() -> None:
    model = collapsing()
    del model.graph.node[1:]
    model.graph.node[0].output[0] = "y"
    with pytest.warns(UserWarning, match="keeps"):
        verdict = quantized(model)
    assert any(note.startswith("not repaired: no model with integers") for note in verdict.notes)
    assert verdict.integer_nodes
