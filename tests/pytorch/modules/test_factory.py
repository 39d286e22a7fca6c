from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from onnxq.errors import ModelError, QConfigError
from onnxq.pytorch import load_factory, load_module, load_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.oracle

SOURCE = """
import torch
def small(): return torch.nn.Linear(3, 2)
def needs(width): return torch.nn.Linear(3, width)
def text(): return "no module"
NUMBER = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; it holds the modules onnxq_test_zoo and onnxq_test_broken."""
    (tmp_path / "onnxq_test_zoo.py").write_text(SOURCE)
    (tmp_path / "onnxq_test_broken.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "onnxq_test_zoo", raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_current_folder_is_on_the_module_path() -> None:
    assert isinstance(load_factory("onnxq_test_zoo:small")(), nn.Linear)
    assert not load_module("onnxq_test_zoo:small").training


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("onnxq_test_zoo", "wanted MODULE:FACTORY"),
        ("onnxq_test_zoo:smal", "no callable 'smal'.*Did you mean 'small'"),
        ("onnxq_test_zoo:NUMBER", "no callable 'NUMBER'"),
        ("onnxq_test_zo:small", "no module.*Did you mean 'onnxq_test_zoo'"),
        ("models.resnt:resnet20", "Did you mean 'models.resnet'"),
        ("onnxq_test_broken:x", "imports 'no_such_package', which is not installed"),
    ],
)
def test_what_is_not_found_is_named_with_the_nearest(spec: str, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        load_factory(spec)


@pytest.mark.usefixtures("folder")
def test_a_factory_that_makes_no_module_is_refused() -> None:
    with pytest.raises(ModelError, match="without arguments"):
        load_module("onnxq_test_zoo:needs")
    with pytest.raises(ModelError, match="returned a str"):
        load_module("onnxq_test_zoo:text")


def test_weights_are_copied_and_the_batch_counter_may_be_missing(tmp_path: Path) -> None:
    state = {k: v + 1 for k, v in nn.BatchNorm1d(3).state_dict().items() if "num_" not in k}
    save_file(state, tmp_path / "w.safetensors")
    module = nn.BatchNorm1d(3)
    load_weights(module, tmp_path / "w.safetensors")
    assert module.weight.tolist() == [2, 2, 2]
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"weight": torch.zeros(2, 3)}, "missing 'bias'"),
        ({"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "b": torch.zeros(1)}, "unknown 'b'"),
        (
            {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)},
            r"shape \(3, 2\); Linear wants \(2, 3\)",
        ),
    ],
)
def test_weights_of_another_model_are_refused(
    tmp_path: Path, state: dict[str, torch.Tensor], message: str
) -> None:
    save_file(state, tmp_path / "w.safetensors")
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    with pytest.raises(ModelError, match=message):
        load_weights(module, tmp_path / "w.safetensors")
    assert torch.equal(module.weight, before)


def test_an_unreadable_file_of_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"\x01")
    for file in ("bad.safetensors", "missing.safetensors"):
        with pytest.raises(ModelError, match=file):
            load_weights(nn.Linear(3, 2), tmp_path / file)


@pytest.mark.parametrize("wrap", [dict, lambda state: {"epoch": 3, "state_dict": state}])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_weights_of_a_checkpoint_are_loaded_without_running_it(
    tmp_path: Path, wrap: Callable[[object], object], prefix: str
) -> None:
    trained, module = nn.Linear(3, 2), nn.Linear(3, 2)
    state = {prefix + name: tensor for name, tensor in trained.state_dict().items()}
    torch.save(wrap(state), tmp_path / "last.ckpt")
    load_weights(module, tmp_path / "last.ckpt")
    assert torch.equal(module.weight, trained.weight)


def test_a_checkpoint_that_is_code_or_nothing_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2), tmp_path / "module.pt")
    (tmp_path / "cut.pt").write_bytes(b"PK")
    torch.save([1, 2], tmp_path / "list.pt")
    for name, words in (
        ("module.pt", r"torch\.save\(module\.state_dict"),
        ("cut.pt", "cannot be read"),
        ("list.pt", "holds a list"),
    ):
        with pytest.raises(ModelError, match=words):
            load_weights(nn.Linear(3, 2), tmp_path / name)
