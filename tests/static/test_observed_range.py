from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq import targets
from onnxq.checking.predict import predict
from onnxq.errors import CalibrationError
from onnxq.static.calibrate import calibrate
from onnxq.static.observed_range import plan_observed
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import model, network, weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.static.prepared import Prepared

DATA = {"x": np.abs(weights(7, 8, 3, 8, 8))}
OBSERVED = targets.find("portable").with_reduce_range("observed")


def prepared_on(source: onnx.ModelProto, target: str = "portable") -> Prepared:
    return prepare(source, None, targets.find(target).with_reduce_range("observed"))


def one_matmul(*rows: list[float]) -> onnx.ModelProto:
    """y = x w, x (N, K)."""
    weight = np.array(rows, np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")
    return model([node], {"w": weight}, {"x": ["N", len(weight)]})


def raised(made: Plan, source: onnx.ModelProto, samples: dict[str, Singles]) -> list[int]:
    """Columns whose scale is not that of the full range."""
    full = prepare(source, None, "x86-vnni")
    scale = plan(full, calibrate(full, samples)).weights["matmul"].qparams.scale
    return np.flatnonzero(made.weights["matmul"].qparams.scale > scale).tolist()


def test_only_columns_that_the_samples_take_beyond_int16_give_up_range() -> None:
    # columns: both rows large; of two signs; large where x is 0; none large
    source = one_matmul(
        [1, 1, 0.1, 1], [1, -1, 0.1, 0.01], [0.1, 0.1, 1, 0.02], [0.1, 0.1, 1, 0.01]
    )
    x = np.array([[1, 0.9, 0, 0], [0.8, 1, 0, 0]], np.float32)
    prepared = prepared_on(source)
    made = plan_observed(prepared, calibrate(prepared, {"x": x}), {"x": x})
    assert raised(made, source, {"x": x}) == [0]
    assert made.reductions["matmul"].channels == 1
    everywhere = prepare(source, None, "portable")
    worst = plan(everywhere, calibrate(everywhere, {"x": x}))
    assert raised(worst, source, {"x": x}) == [0, 2]


def test_no_sum_leaves_int16_on_the_samples_but_on_others_some_may() -> None:
    source = one_matmul([1, 0.1], [1, 0.1], [0.1, 1], [0.1, 1])
    seen = {"x": np.array([[1, 1, 0, 0]], np.float32)}
    unseen = {"x": np.array([[0, 0, 1, 1]], np.float32)}
    made = onnxq.quantize(source, seen, target=OBSERVED)
    assert predict(made, seen).differing == ()
    assert "x86-avx2" in predict(made, unseen).differing
    promised = onnxq.quantize(source, seen, target="portable")
    assert predict(promised, unseen).differing == ()
    assert not any(m.may_differ for m in predict(promised).machines)


def test_a_network_is_gone_through_until_nothing_leaves_int16() -> None:
    source = network()
    prepared = prepared_on(source)
    made = plan_observed(prepared, calibrate(prepared, DATA), DATA)
    assert (
        predict(rewrite(prepared, made, "qdq"), onnxq.Samples(DATA, batch_size=8)).differing == ()
    )


def test_batches_that_can_be_read_once_alone_are_kept() -> None:
    source = one_matmul([1, 0.1], [1, 0.1])
    batches = [{"x": np.array([[1, k]], np.float32)} for k in (1, 0.5)]
    once = onnxq.quantize(source, iter(batches), target=OBSERVED)
    twice = onnxq.quantize(source, batches, target=OBSERVED)
    assert ir.to_proto(once).graph == ir.to_proto(twice).graph
    assert "x86-avx2" not in predict(once, batches).differing


@pytest.mark.parametrize("how", ["statistics", "function"])
def test_what_was_seen_earlier_does_not_say_what_saturated(how: str) -> None:
    source = one_matmul([1, 0.1], [1, 0.1])
    x = {"x": np.ones((1, 2), np.float32)}
    ways: dict[str, Any] = {
        "statistics": calibrate(prepared_on(source), x),
        "function": lambda prepared: prepared.run(x),
    }
    with pytest.raises(CalibrationError, match="'observed' needs the samples"):
        onnxq.quantize(source, ways[how], target=OBSERVED)


def test_a_target_that_never_saturates_runs_nothing() -> None:
    prepared = prepared_on(one_matmul([1, 0.1], [1, 0.1]), "arm64")
    x = {"x": np.ones((1, 2), np.float32)}
    made = plan_observed(prepared, calibrate(prepared, x), None)
    assert made.reductions == {}
