from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.errors import CalibrationError, QConfigError
from onnxq.pytorch import (
    example_inputs,
    nested_inputs,
    parse_axis,
    parse_input,
    read_inputs,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle

X = torch.arange(6.0).reshape(3, 2)


def test_example_inputs_come_from_the_module_before_its_file() -> None:
    module = nn.ReLU()
    with pytest.raises(QConfigError, match=r"--input 'input=float32\[.*define example_inputs"):
        example_inputs(module)
    module.example_input_array = X  # Lightning's name
    assert example_inputs(module) is X
    module.example_inputs = lambda: (X, X)  # type: ignore[assignment]  # a module takes any
    assert len(example_inputs(module)) == 2


def test_the_models_of_this_repository_offer_real_images() -> None:
    from models.resnet import resnet20

    inputs = example_inputs(resnet20())
    assert isinstance(inputs, dict)
    assert inputs["image"].shape == (4, 3, 32, 32)


def test_input_texts_give_seeded_tensors() -> None:
    name, image = parse_input("image=float32[2,3]")
    assert (name, image.shape, image.dtype) == ("image", (2, 3), torch.float32)
    assert torch.equal(image, parse_input("image=float32[2,3]")[1])
    _, ids = parse_input("ids=int64[100]")
    assert set(ids.tolist()) == {0, 1}
    assert parse_input("t=float32[]")[1].shape == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [("image", "wanted NAME=DTYPE"), ("x=float23[1]", "Did you mean 'float32'")],
)
def test_bad_input_texts_say_what_is_wanted(text: str, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        parse_input(text)


def test_inputs_are_the_first_rows_of_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros((9, 2), np.float32), b=np.zeros(9, np.int64))
    inputs = read_inputs(tmp_path / "x.npz")
    assert {name: tuple(x.shape) for name, x in inputs.items()} == {"a": (4, 2), "b": (4,)}
    (tmp_path / "bad.npz").write_text("no zip")
    for file in ("bad.npz", "missing.npz"):
        with pytest.raises(CalibrationError, match=file):
            read_inputs(tmp_path / file)


def test_pickled_inputs_are_named_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(CalibrationError, match="is not an npz file") as caught:
        read_inputs(tmp_path / "x.npz")
    assert "allow_pickle" not in str(caught.value)


def test_dotted_names_are_tuples_and_dicts() -> None:
    made = nested_inputs({"x": X, "hidden.0": X, "hidden.1": X + 1, "batch.ids.0": X})
    assert list(made) == ["x", "hidden", "batch"]
    assert made["x"] is X
    hidden, batch = made["hidden"], made["batch"]
    assert isinstance(hidden, tuple)
    assert torch.equal(hidden[1], X + 1)
    assert batch == {"ids": (X,)}
    assert parse_input("hidden.0=float32[2]")[0] == "hidden.0"
    with pytest.raises(QConfigError, match="positions 1; wanted 0"):
        nested_inputs({"hidden.1": X})
    with pytest.raises(QConfigError, match="'h' is a tensor, and has parts too"):
        nested_inputs({"h": X, "h.0": X})


def test_axes_are_read_with_the_names_of_the_models_inputs() -> None:
    assert parse_axis("hidden.0:1=batch") == ("hidden_0", 1, "batch")
    assert parse_axis("x:-1=length") == ("x", -1, "length")
    with pytest.raises(QConfigError, match="wanted NAME:AXIS=SIZE"):
        parse_axis("x[1]=batch")


def test_a_file_that_imports_the_function_itself_offers_nothing() -> None:
    class Plain(nn.Linear):  # of this file, which imports it
        pass

    with pytest.raises(QConfigError, match="no example inputs"):
        example_inputs(Plain(2, 2))
