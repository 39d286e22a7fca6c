"""Models of other libraries train, convert and deploy; the table of them is printed by a script."""

from __future__ import annotations

import importlib.util

import pytest

if not all(map(importlib.util.find_spec, ("transformers", "timm"))):  # timm imports torchvision
    pytest.skip("scripts/nightly installs transformers and timm", allow_module_level=True)

from benchmarks.parts.qat_models import MODELS
from benchmarks.qat_models import run


@pytest.mark.nightly(nights=5)
@pytest.mark.filterwarnings("ignore")  # of those libraries
@pytest.mark.parametrize("name", MODELS)
def test_it_trains_and_onnx_runtime_computes_the_integers_that_the_reference_does(
    name: str,
) -> None:
    one = run(name)
    assert one.annotations.weights
    assert not one.findings.differing
    assert not one.findings.first_difference
