from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError, QConfigError
from onnxq.jobs import Processes
from onnxq.times import costs_of
from onnxq.tuning.tune import tune
from onnxq.tuning.tuned import MissedGoalWarning
from tests.examples import images, model, network, save, weights
from tests.tuning.parts import chain, rows

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.tuning.scoring.model_run import ModelRun
    from onnxq.tuning.scoring.tuning_samples import TuningSamples
    from onnxq.tuning.tuned import Tuned

pytestmark = pytest.mark.slow  # a search is a calibration, and some quantizations

GOAL = onnxq.Goal(min_sqnr_db=36, max_runs=12)
TABLE = costs_of("x86-vnni")
COMMAND = """
import numpy as np, onnxq, sys
onnxq.tune(sys.argv[1], {'x': np.load(sys.argv[2])}, journal=sys.argv[3],
           goal=onnxq.Goal(min_sqnr_db=36, max_runs=12), target='x86-vnni')
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tune")
    np.save(folder / "x.npy", images(16))
    return save(network(), folder / "m.onnx"), folder / "x.npy"


@pytest.fixture(scope="module")
def journal(files: tuple[Path, Path]) -> tuple[Path, Tuned]:
    """A journal with the times that the others share, and what it led to."""
    path = files[0].parent / "journal"
    return path, tuned(files, path)


def tuned(files: tuple[Path, Path], journal: Path, executor: Executor | None = None) -> Tuned:
    model, x = files
    samples = {"x": np.load(x)}
    return tune(model, samples, journal=journal, goal=GOAL, target="x86-vnni", executor=executor)


def times_alone(journal: Path, to: Path) -> Path:
    """A journal that has the times of another one, of nodes and of whole runs, and nothing else."""
    lines = journal.read_bytes().splitlines(keepends=True)
    to.write_bytes(
        b"".join(each for each in lines[1:] if b'"time' in each[:40]).join([lines[0], b""])
    )
    return to


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_runs_are_taken_than_may_be(
    files: tuple[Path, Path], journal: tuple[Path, Tuned], tmp_path: Path, most: int
) -> None:
    goal = onnxq.Goal(min_sqnr_db=20, max_runs=most)
    samples, times = {"x": np.load(files[1])}, times_alone(journal[0], tmp_path / "j")
    found = tune(files[0], samples, journal=times, goal=goal, target="x86-vnni")
    assert found.spent.runs <= most
    assert found.score.worst_db >= 20


def test_goal_is_reached_and_the_report_has_each_stage(journal: tuple[Path, Tuned]) -> None:
    found = journal[1]
    assert found.missed == ()
    assert found.score.worst_db >= 36
    assert found.held_apart.score.worst_db >= 36
    report = found.report()
    for words in ("what each group costs alone", "models that were measured", "front", "goal"):
        assert words in report


def test_qconfig_of_every_point_gives_a_model_without_a_search(
    files: tuple[Path, Path], journal: tuple[Path, Tuned]
) -> None:
    model, x = files
    found = journal[1]
    again = onnxq.quantize(
        model,
        {"x": np.load(x)},
        qconfig=found.qconfig,
        target="x86-vnni",
        check=onnxq.Check(hold_apart=4),
    )
    assert again.to_bytes() == found.model.to_bytes()
    assert found.qconfig in [point.qconfig for point in found.front]


def test_front_is_saved_under_a_name(journal: tuple[Path, Tuned], tmp_path: Path) -> None:
    saved = journal[1].save_front(str(tmp_path / "front"))
    assert [file.is_file() for file in saved] == [True] * len(journal[1].front)


@pytest.mark.nightly
def test_four_workers_give_the_bytes_of_one(
    files: tuple[Path, Path], journal: tuple[Path, Tuned], tmp_path: Path
) -> None:
    with Processes(4, ("onnxq.tuning.tune",)) as executor:
        found = tuned(files, times_alone(journal[0], tmp_path / "j"), executor=executor)
    assert found.model.to_bytes() == journal[1].model.to_bytes()
    assert found.steps == journal[1].steps


@pytest.mark.nightly
def test_killed_search_goes_on_to_the_same_bytes(
    files: tuple[Path, Path], journal: tuple[Path, Tuned], tmp_path: Path
) -> None:
    path = times_alone(journal[0], tmp_path / "j")
    lines = path.read_bytes().count(b"\n")
    command = [sys.executable, "-c", COMMAND, *map(str, (*files, path))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and path.read_bytes().count(b"\n") < lines + 3:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert path.read_bytes().count(b"\n") < journal[0].read_bytes().count(b"\n")
    found = tuned(files, path)
    assert found.model.to_bytes() == journal[1].model.to_bytes()
    assert found.steps == journal[1].steps


def accuracy(run: ModelRun, samples: TuningSamples) -> float:
    right = [run(batch)["y"].argmax(1) == batch["labels"] for batch in samples.batches]
    return float(np.concatenate(right).mean())


def test_metric_of_the_user_gets_labels_and_bounds_the_drop(files: tuple[Path, Path]) -> None:
    x = np.load(files[1])
    found = tune(
        files[0],
        {"x": x, "labels": np.arange(16) % 10},
        goal=onnxq.Goal(max_drop=1.0, max_runs=2, metric=accuracy, improve=()),
        target="x86-vnni",
        costs=TABLE,
    )
    assert found.labels == ("labels",)
    assert found.float_metric - found.score.metric <= 1.0


def test_goal_out_of_reach_warns_and_gives_the_best(files: tuple[Path, Path]) -> None:
    goal = onnxq.Goal(min_sqnr_db=199, max_time=0.01, max_runs=4)
    with pytest.warns(MissedGoalWarning, match="not reached"):
        found = tune(files[0], {"x": np.load(files[1])}, goal=goal, target="x86-vnni", costs=TABLE)
    assert found.missed
    assert found.front


@pytest.mark.parametrize(
    ("least_db", "runs", "is_smaller"),
    [(120.0, 4, False), (41.0, 8, True)],
    ids=["float", "stored"],
)
def test_a_bound_that_no_integers_keep_is_kept_where_times_come_from_a_table(
    least_db: float, runs: int, is_smaller: bool
) -> None:
    """By float, however few the runs; by stored weights, which take no longer and are smaller."""
    goal = onnxq.Goal(min_sqnr_db=least_db, max_runs=runs, improve=())
    float_model = chain()
    found = tune(float_model, rows(float_model, 80), goal=goal, costs=TABLE)
    assert not found.missed
    assert found.score.time_ratio == 1.0
    assert (found.score.size_bytes < float_model.ByteSize()) is is_smaller


def test_drop_of_a_metric_that_float_has_no_value_of_is_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(onnxq.errors.QConfigError, match="--min-sqnr"):
        tune(files[0], {"x": np.load(files[1])}, goal=onnxq.Goal(max_drop=1.0))


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"goal": 30}, r"goal is an int; wanted onnxq\.Goal"),
        ({"qconfig": "x86"}, "qconfig is a str"),
        ({"qconfig": "a.yaml"}, "a.yaml"),
        ({"costs": "costs.csv"}, r"costs are a str; .* Costs\.load"),
        ({"progress": 3}, "progress is an int"),
        ({"journal": 5}, "journal is an int; wanted the path of a file"),
    ],
)
def test_argument_of_another_layer_type_is_refused_before_the_model_is_read(
    argument: dict[str, Any], said: str
) -> None:
    with pytest.raises((QConfigError, CalibrationError), match=said):
        tune("none.onnx", {}, **argument)


def test_state_that_the_model_does_not_have_is_named() -> None:
    with pytest.raises(QConfigError, match="feedback: the model has no output 'h'; it has y"):
        tune(network(), onnxq.Samples({"x": images(8)}, feedback={"h": "x"}), costs=TABLE)


@pytest.mark.filterwarnings("ignore:output")  # a matrix of random weights, six times
def test_parts_of_a_layer_type_are_measured_where_changes_still_have_runs() -> None:
    matmuls = [helper.make_node("MatMul", [f"a{i}", f"w{i}"], [f"p{i}"], f"m{i}") for i in range(6)]
    relus = [helper.make_node("Relu", [f"p{i}"], [f"a{i + 1}"], f"r{i}") for i in range(5)]
    matmuls[5].output[0] = "y"
    nodes = [node for pair in zip(matmuls, relus, strict=False) for node in pair]
    chain = model([*nodes, matmuls[5]], {f"w{i}": weights(i, 16, 16) for i in range(6)},
                  {"a0": ["N", 16]})  # fmt: skip
    groups = []
    for runs in (3, 12):
        goal = onnxq.Goal(max_runs=runs, objective=Objective.ACCURACY, improve=())
        found = tune(chain, rows(chain, 16), goal=goal, target="x86-vnni", costs=TABLE)
        groups.append(len(found.sensitivity.costs))
    assert groups[0] < groups[1]
