"""Every documented name of torch's quantization is there, or says what to use in its place."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from onnxq.errors import UnsupportedError
from onnxq.pytorch import quantization
from onnxq.pytorch.modules.refused_names import QUANTIZATION, RefusedName

NAMES = Path(__file__).resolve().parents[2] / "golden" / "torch_documented_names.txt"


def documented() -> dict[str, list[str]]:
    """Namespace of torch -> its names, of the pages of PyTorch 1.3 to 2.13."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in NAMES.read_text("utf-8").splitlines():
        if not line.startswith(" "):
            names = found.setdefault(line, [])
        else:
            names += line.split()
    return found


def own(namespace: str) -> str:
    """torch.ao.quantization.observer -> onnxq.pytorch.quantization.observer."""
    inner = namespace.removeprefix("torch.").removeprefix("ao.").replace("_intrinsic", "intrinsic")
    return f"onnxq.pytorch.{inner}"


@pytest.mark.parametrize("namespace", documented())
def test_every_documented_name_is_there_or_refused(namespace: str) -> None:
    # by a from-import, as scripts do: `quantize_jit` is a module and a function
    home = importlib.import_module(own(namespace))
    for name in documented()[namespace]:
        found = getattr(home, name)  # an AttributeError names what is missing
        if isinstance(found, RefusedName):
            assert found.remedy.endswith("."), name
            with pytest.raises(UnsupportedError, match=name):
                found()


def test_refused_names_are_no_public_ones() -> None:
    assert not QUANTIZATION.keys() & set(quantization.__all__)
    assert not QUANTIZATION.keys() & set(dir(quantization))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("namespace", [name for name in documented() if ".ao." in name])
def test_the_list_has_all_of_the_installed_torch(namespace: str) -> None:
    theirs = getattr(importlib.import_module(namespace), "__all__", [])
    assert set(theirs) <= set(documented()[namespace])
