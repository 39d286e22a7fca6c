"""ResNet-20 with int8 activations on emulated ARM: all of it runs in integers, as predicted."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from models.cifar10 import load_sample
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.ort import runtime
from onnxq.qconfig import QConfig, QConfigMapping
from scripts._models import float_models
from tests.isa.machines import GRAPH, MACHINES
from tests.isa.model_cases import ModelCase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isa.machines import Machine, Results

pytestmark = [pytest.mark.isa, pytest.mark.oracle, pytest.mark.usefixtures("emulators")]

SCHEMES = ("per_tensor_symmetric", "per_tensor_affine")
TARGETS = ("portable", "arm64-dot")
FORMS = ("qdq", "qoperator")
NAMES = ["-".join(parts) for parts in itertools.product(SCHEMES, TARGETS, FORMS)]
(DOT,) = (machine for machine in MACHINES if machine.name == "dot")
CALIBRATION, IMAGES = 32, 4


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelCase]:
    calibration, images = load_sample("calibration")[0], load_sample("test")[0][:IMAGES]
    folder = tmp_path_factory.mktemp("float")
    (source,) = itertools.islice(float_models(folder, calibration[:2]), 1)
    samples = {"image": calibration[:CALIBRATION]}
    found = {}
    for scheme, target in itertools.product(SCHEMES, TARGETS):
        observer = MinMaxObserver.with_args(dtype="qint8", qscheme=scheme)
        qconfig = QConfigMapping(QConfig(observer, NarrowRangeObserver.with_args()))
        prepared = onnxq.prepare(source.path, qconfig, target)
        plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
        for form in FORMS:
            name, model = f"{scheme}-{target}-{form}", onnxq.rewrite(prepared, plan, form)
            found[name] = ModelCase(name, model, model, images)
    return found


@pytest.fixture(scope="module")
def results(
    cases: dict[str, ModelCase],
    tmp_path_factory: pytest.TempPathFactory,
    run_on: Callable[[Machine, Path], Results],
) -> Results:
    folder = tmp_path_factory.mktemp("int8")
    for case in cases.values():
        case.save(folder)
        (folder / f"{case.name}{GRAPH}").touch()
    return run_on(DOT, folder)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_runs_in_integers_as_predicted(
    name: str, cases: dict[str, ModelCase], results: Results
) -> None:
    uses = runtime.integer_nodes(results.graph(name))
    assert not runtime.count(uses, runtime.NodeKind.FLOAT)
    integer = runtime.count(uses, runtime.NodeKind.INTEGER)
    assert (integer["QLinearConv"], integer["QLinearAdd"]) == (21, 9)
    got, predicted = results.outputs(name), cases[name].predicted(DOT.saturation_mode)
    for x, y in zip(got, predicted, strict=True):
        np.testing.assert_array_equal(x, y)
