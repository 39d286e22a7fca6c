"""Whole models on emulated machines, over real images, layer by layer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from models.cifar10 import load_sample
from onnxq.checking.predict import predict
from onnxq.targets.accumulation import SaturationMode
from scripts._models import float_models
from tests.isa.machines import BY_MACHINE, MACHINES
from tests.isa.model_cases import CLIPPED, TARGETS, ModelCase, model_cases
from tests.this_machine import run_exactly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.operator import Array
    from tests.isa.machines import Machine, Results

pytestmark = [
    pytest.mark.isa,
    pytest.mark.oracle,  # torch exports the models
    pytest.mark.usefixtures("emulators"),  # without the machines no model is made
]

IMAGES = 6
CALIBRATION = 64
NETWORKS = ("resnet20", "mobilenetv2")
NAMES = [f"{network}-{kind}" for network in NETWORKS for kind in (*TARGETS, CLIPPED)]
AVX2, DOT = (next(m for m in MACHINES if m.name == name) for name in ("avx2", "dot"))
END_TO_END = 50


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelCase]:
    calibration, images = load_sample("calibration")[0], load_sample("test")[0]
    floats = tmp_path_factory.mktemp("floats")
    cases = model_cases(floats, calibration[:CALIBRATION], images[:IMAGES])
    return {case.name: case for case in cases}


@pytest.fixture(scope="session")
def folder(models: dict[str, ModelCase], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for case in models.values():
        case.save(path)
    return path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", BY_MACHINE)
def test_every_integer_of_every_layer_is_as_predicted(
    machine: Machine,
    name: str,
    models: dict[str, ModelCase],
    folder: Path,
    run_on: Callable[[Machine, Path], Results],
) -> None:
    case = models[name]
    got = run_on(machine, folder).outputs(name)
    predicted = case.predicted(machine.saturation_mode)
    assert differing(case, got, predicted) == {}
    if name.endswith("portable"):
        assert differing(case, got, case.predicted(SaturationMode.EXACT)) == {}


def differing(case: ModelCase, got: list[Array], wanted: list[Array]) -> dict[str, int]:
    """Tensor -> elements that differ, where some do."""
    counts = {
        name: int(np.count_nonzero(x != y))
        for name, x, y in zip(case.outputs, got, wanted, strict=True)
    }
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_differ_on_avx2_as_predict_says(
    network: str,
    models: dict[str, ModelCase],
    folder: Path,
    run_on: Callable[[Machine, Path], Results],
) -> None:
    case = models[f"{network}-x86-vnni"]
    got = run_on(AVX2, folder).outputs(case.name)
    on_avx2 = differing(case, got, case.predicted(SaturationMode.EXACT))
    samples = {"image": case.images}
    prediction = predict(case.model, onnxq.Samples(samples, batch_size=IMAGES), AVX2.target)
    (machine,) = prediction.machines
    integers = integer_tensors(case.model)
    layers = {integers[layer.name]: layer.differing for layer in machine.layers if layer.differing}
    assert layers
    assert layers == {name: on_avx2.get(name, 0) for name in layers}
    named = {integers[layer.name] for layer in machine.layers}
    assert named & set(on_avx2) == set(layers)
    assert prediction.differing == (AVX2.target,)


def integer_tensors(model: ir.Model) -> dict[str, str]:
    """Name of a node -> the tensor of its integers, behind its QuantizeLinear; or of its floats."""
    found = {}
    for node in model.graph:
        value = node.outputs[0]
        readers = list(value.consumers())
        while len(readers) == 1 and readers[0].op_type in ("Relu", "Clip", "QuantizeLinear"):
            value = readers[0].outputs[0]
            if readers[0].op_type == "QuantizeLinear":
                break
            readers = list(value.consumers())
        found[str(node.name)] = str(value.name)
    return found


def test_resnet_20_on_arm_gives_every_image_the_class_that_it_has_on_x86(
    tmp_path_factory: pytest.TempPathFactory, run_on: Callable[[Machine, Path], Results]
) -> None:
    calibration, (images, labels) = load_sample("calibration")[0], load_sample("test")
    images, labels = images[:END_TO_END], labels[:END_TO_END]
    (source,) = itertools.islice(float_models(tmp_path_factory.mktemp("float"), calibration), 1)
    model = onnxq.quantize(source.path, {"image": calibration}, target="arm64-dot")
    cases = tmp_path_factory.mktemp("resnet20")
    ModelCase("resnet20", model, model, images).save(cases)
    (arm,) = run_on(DOT, cases).outputs("resnet20")
    (x86,) = run_exactly(model, {"image": images})
    assert np.array_equal(arm.argmax(1), x86.argmax(1))
    assert (arm.argmax(1) == labels).mean() > 0.8
