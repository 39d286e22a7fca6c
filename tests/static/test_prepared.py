"""A Prepared observes batches, and travels as the path of its model's file."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.io import load, model_hash
from onnxq.static.calibrate import calibrate
from onnxq.static.prepare import prepare
from tests.examples import images, network, save, weights
from tests.static.test_prepare import recurrent

if TYPE_CHECKING:
    from pathlib import Path


def batches(count: int = 3) -> list[dict[str, npt.NDArray[np.float32]]]:
    return [{"x": images(2, seed)} for seed in range(count)]


def sizes(net: ir.Model) -> dict[str, str | None]:
    """Tensor name -> its shape, of what nodes give."""
    values = [value for node in net.graph for value in node.outputs]
    return {str(v.name): None if v.shape is None else str(v.shape) for v in values}


def test_feedback_makes_the_state_optional_in_run() -> None:
    prepared = prepare(recurrent(), feedback={"h_out": "h"})
    assert prepared.feedback == {"h_out": "h"}
    for _ in range(2):
        prepared.run({"x": np.ones((2, 4), np.float32)})
    assert len(prepared.statistics.batches) == 2


def test_the_loop_form_gives_what_calibrate_gives() -> None:
    looped, whole = prepare(network()), prepare(network())
    for batch in batches():
        looped.run(batch)
    statistics = calibrate(whole, batches())
    assert looped.statistics.batches == statistics.batches
    assert looped.statistics.model_hash == statistics.model_hash
    for name, observer in statistics.observers.items():
        theirs = looped.statistics.observers[name].state()
        for key, array in observer.state().items():
            np.testing.assert_array_equal(theirs[key], array)


def test_a_pickle_knows_the_sizes_of_all_tensors() -> None:
    prepared = prepare(network())
    back = pickle.loads(pickle.dumps(prepared))
    assert sizes(back.model) == sizes(prepared.model)
    assert None not in sizes(prepared.model).values()


def test_a_pickle_of_a_file_is_its_path_and_the_same_prepared(tmp_path: Path) -> None:
    prepared = prepare(save(network(), tmp_path / "net.onnx"))
    data = pickle.dumps(prepared)
    assert weights(3, 8, 8, 3, 3).tobytes() not in data
    back = pickle.loads(data)
    assert model_hash(back.model) == model_hash(prepared.model)
    assert sizes(back.model) == sizes(prepared.model)
    assert (back.decisions, back.groups, back.observed) == (
        prepared.decisions,
        prepared.groups,
        prepared.observed,
    )
    again = pickle.dumps(back)
    assert pickle.dumps(pickle.loads(again)) == again  # and so in the next process


def test_a_pickle_of_a_file_that_is_another_by_now_is_refused(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "net.onnx")
    data = pickle.dumps(prepare(path))
    save(network(opset=19), path)
    with pytest.raises(ModelError, match=r"is not the model that was prepared .*file changed"):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(ModelError, match="no such file"):
        pickle.loads(data)


def test_a_pickle_of_a_model_that_was_edited_holds_its_weights(tmp_path: Path) -> None:
    prepared = prepare(save(network(), tmp_path / "net.onnx"))
    value = prepared.model.graph.initializers["w2"]
    value.const_value = ir.tensor(weights(9, 8, 8, 3, 3), name="w2")
    back = pickle.loads(pickle.dumps(prepared))
    assert model_hash(back.model) == model_hash(prepared.model)


def test_a_model_in_memory_that_was_read_from_a_file_pickles_as_its_path(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "net.onnx")
    prepared = prepare(load(path)).read_from(path)
    assert len(pickle.dumps(prepared)) < len(pickle.dumps(prepare(load(path))))


def test_without_a_batch_there_are_no_statistics() -> None:
    with pytest.raises(CalibrationError, match=r"call run\(batch\) first"):
        _ = prepare(network()).statistics


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({}, "x"),
        ({"y": images(1), "z": images(1)}, "y"),
        ({"x": images(1)[:, :2]}, "x"),
        ({"x": images(1).astype(np.float64)}, "float64"),
        ({"x": images(1) * np.float32(np.nan)}, "holds nan"),
    ],
    ids=["missing", "misnamed", "shape", "dtype", "NaN"],
)
def test_run_refuses_what_does_not_suit_the_model(
    batch: dict[str, npt.NDArray[np.generic]], words: str
) -> None:
    prepared = prepare(network())
    with pytest.raises(CalibrationError, match=words):
        prepared.run(batch)


def test_printing_a_prepared_model_leaves_the_graph_out() -> None:
    text = repr(prepare(network()))
    assert "decisions={9 items}" in text
    assert "graph" not in text
