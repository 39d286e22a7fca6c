from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onnxq.ort import target_here as module
from onnxq.targets import detect, find
from onnxq.targets.accumulation import SaturationMode

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """Forgets the answer, before and after."""
    module.target_here.cache_clear()
    yield
    module.target_here.cache_clear()


@pytest.mark.skipif(not Path("/proc/cpuinfo").is_file(), reason="the machine does not say")
def test_it_is_what_the_machine_says_where_the_machine_says_what_it_has() -> None:
    assert module.target_here().saturation_mode is detect().saturation_mode


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize(("total", "target"), [(64770, "x86-vnni"), (32767, "x86-avx2")])
def test_onnx_runtime_decides_where_the_machine_may_saturate(
    total: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "detect", lambda: find("x86-avx2"))
    monkeypatch.setattr(module, "_pair_of_products", lambda: total)
    assert module.target_here() is find(target)


def test_a_pair_of_products_saturates_where_the_arithmetic_says_so() -> None:
    saturates = module.target_here().saturation_mode is SaturationMode.SATURATES
    assert module._pair_of_products() == (32767 if saturates else module.LARGEST)
