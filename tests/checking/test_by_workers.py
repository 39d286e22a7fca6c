from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.checking.cross_check import cross_check
from onnxq.checking.predict import predict
from onnxq.errors import CalibrationError, ModelError, UnsupportedError
from onnxq.jobs import Processes
from onnxq.pipeline import quantize
from onnxq.survey.verified import verify
from tests.examples import ALL_INTEGERS, images, network, save
from tests.jobs.executors import Newest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path

COUNT = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with float.onnx, int8.onnx of the target x86-vnni, and x.npy."""
    made = tmp_path_factory.mktemp("models")
    save(network(), made / "float.onnx")
    scales = np.linspace(0.1, 4, COUNT, dtype=np.float32).reshape(-1, 1, 1, 1)
    np.save(made / "x.npy", images(COUNT) * scales)
    # weights with full range: sums differ on other machines
    int8 = quantize(made / "float.onnx", {"x": images(4)}, qconfig=ALL_INTEGERS, target="x86-vnni")
    int8.save(made / "int8.onnx")
    return made


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2, ["onnxq.pipeline", "onnxq.checking.cross_check"]) as executor:
        yield executor


EXECUTORS = [Newest(1), Newest(2), Newest(4, frozenset({0, 5}))]


@pytest.mark.parametrize("executor", EXECUTORS, ids=["1", "2", "4-lost"])
def test_findings_are_the_same_text_for_any_number_of_workers(
    executor: Executor, folder: Path
) -> None:
    paths = (folder / "float.onnx", folder / "int8.onnx", folder / "x.npy")
    assert verify(*paths, executor=executor).to_json() == verify(*paths).to_json()
    crossed = cross_check(*paths[1:], executor=executor)
    assert crossed.to_json() == cross_check(*paths[1:]).to_json()
    assert crossed.nodes
    predicted = predict(*paths[1:], executor=executor)
    assert predicted.to_json() == predict(*paths[1:]).to_json()
    assert predicted.batches == COUNT


def test_findings_of_processes_are_those_of_this_one(processes: Processes, folder: Path) -> None:
    seen: list[int] = []
    paths = (folder / "int8.onnx", folder / "x.npy")
    found = cross_check(*paths, executor=processes, progress=lambda done, _: seen.append(done))
    assert found.to_json() == cross_check(*paths).to_json()
    assert seen == list(range(1, COUNT + 1))


def test_models_and_samples_in_memory_travel_by_value(folder: Path) -> None:
    int8 = quantize(network(), {"x": images(4)}, qconfig=ALL_INTEGERS, target="x86-vnni")
    batches = [{"x": row[None]} for row in np.load(folder / "x.npy")]
    here = verify(network(), int8.to_proto(), batches)
    away = verify(network(), int8.to_proto(), iter(batches), executor=Newest(3))
    assert away.to_json() == here.to_json()


def test_a_file_that_changes_under_way_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "int8.onnx"
    path.write_bytes((folder / "int8.onnx").read_bytes())
    batches = [{"x": row[None]} for row in np.load(folder / "x.npy")]

    def changing() -> Iterator[dict[str, np.ndarray]]:
        save(network(), path)
        yield from batches

    with pytest.raises(ModelError, match="is another model now than where the work began"):
        cross_check(path, changing(), executor=Newest(2))


def test_a_batch_that_the_model_does_not_run_on_is_named_by_its_part(folder: Path) -> None:
    batches = [{"x": row[None]} for row in np.load(folder / "x.npy")]
    batches[6]["x"] = batches[6]["x"][:, :, :, :5]
    with pytest.raises(CalibrationError, match="item 6"):
        verify(folder / "float.onnx", folder / "int8.onnx", batches, executor=Newest(2))


def test_another_graph_on_a_worker_is_refused(folder: Path) -> None:
    from dataclasses import replace

    from onnxq.checking.node_by_node import NodeByNode
    from onnxq.graph.io import load
    from onnxq.targets.accumulation import SaturationMode

    nodes = NodeByNode(load(folder / "int8.onnx"), SaturationMode.EXACT)
    counts = nodes.take()
    with pytest.raises(UnsupportedError, match="another graph of the model on a worker"):
        nodes.add(replace(counts, keys=counts.keys[1:]))
    with pytest.raises(UnsupportedError, match="adds products otherwise"):
        nodes.add(replace(counts, saturation_mode=SaturationMode.SATURATES))
