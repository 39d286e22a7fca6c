"""Whole models in WebAssembly, every integer of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from models.cifar10 import load_sample
from onnxq.targets.accumulation import SaturationMode
from tests.isa.model_cases import CLIPPED, TARGETS, ModelCase, model_cases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isa.machines import Results

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.oracle,  # torch exports the models
    pytest.mark.usefixtures("modules"),
]

IMAGES = 6
CALIBRATION = 64
NAMES = [f"{net}-{kind}" for net in ("resnet20", "mobilenetv2") for kind in (*TARGETS, CLIPPED)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelCase]:
    calibration, images = load_sample("calibration")[0], load_sample("test")[0]
    floats = tmp_path_factory.mktemp("floats")
    cases = model_cases(floats, calibration[:CALIBRATION], images[:IMAGES])
    return {case.name: case for case in cases}


@pytest.fixture(scope="module")
def folder(models: dict[str, ModelCase], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for case in models.values():
        case.save(path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_integer_of_every_layer_is_as_predicted(
    name: str,
    models: dict[str, ModelCase],
    folder: Path,
    run_in_node: Callable[[Path], Results],
) -> None:
    case, got = models[name], run_in_node(folder).outputs(name)
    kinds = [
        SaturationMode.DIVIDES,
        *[SaturationMode.EXACT for _ in range(name.endswith("portable"))],
    ]
    for kind in kinds:
        wanted = case.predicted(kind)
        pairs = zip(case.outputs, got, wanted, strict=True)
        assert [output for output, x, y in pairs if not np.array_equal(x, y)] == []
