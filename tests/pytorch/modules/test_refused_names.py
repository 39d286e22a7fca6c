"""Names that are refused where they are used, and can be imported."""

from __future__ import annotations

import copy

import pytest
from torch import nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.modules.refused_names import RefusedName, refusing

NAME = RefusedName("torch.ao.prepare_fx", "Use prepare(model, inputs=example).")


def test_calls_attributes_and_subclasses_say_what_to_use() -> None:
    said = r"torch\.ao\.prepare_fx is not there\. Use prepare\(model, inputs=example\)\."
    with pytest.raises(UnsupportedError, match=said):
        NAME(nn.Linear(2, 2), dtype="qint8")
    with pytest.raises(UnsupportedError, match=said):
        NAME.with_args(dtype="qint8")
    with pytest.raises(UnsupportedError, match=said):

        class Mine(NAME):  # type: ignore[misc, valid-type]
            """A subclass."""


def test_nothing_is_an_instance_of_it() -> None:
    assert not isinstance(nn.Linear(2, 2), NAME)  # type: ignore[arg-type]


def test_it_can_be_copied_and_compared() -> None:
    assert copy.deepcopy(NAME) == NAME


def test_a_module_has_the_names_and_no_others() -> None:
    of = refusing("home", {"prepare_fx": "Use prepare."})
    assert of("prepare_fx") == RefusedName("home.prepare_fx", "Use prepare.")
    with pytest.raises(AttributeError, match="'home' has no attribute 'prepare_gx'"):
        of("prepare_gx")
