"""A training graph is called as its module is."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import register_dataclass

from onnxq.errors import ModelError
from onnxq.pytorch.programs.call_form import ConstantGuard, OutputForm, is_plain
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import Mixed, Result, images

pytestmark = pytest.mark.oracle


def test_parameters_keep_their_names_order_and_defaults() -> None:
    model = Mixed()
    graph = training_graph(copy.deepcopy(model), program_of(model, (images(), 2.0)))
    parameters = inspect.signature(graph.forward).parameters
    assert [*parameters] == ["x", "scale", "extra"]
    assert (parameters["scale"].default, parameters["extra"].default) == (1.0, None)
    with pytest.raises(ModelError, match=r"'scale' is 1\.0; the model was prepared for 2\.0"):
        graph(images())
    with pytest.raises(ModelError, match="'extra' is a tensor; the model was prepared for None"):
        graph(images(), 2.0, torch.ones(4, 4))


class Keywords(nn.Module):
    """Arguments by keyword alone, some of them unnamed."""

    def forward(self, *, x: Tensor, **more: Tensor) -> list[Tensor]:
        """Sums."""
        return [x + part for part in more.values()]


def test_keywords_go_by_name() -> None:
    given = {"x": torch.ones(2), "bias": torch.ones(2), "other": torch.zeros(2)}
    graph = training_graph(Keywords(), program_of(Keywords(), given))
    got = graph(other=torch.zeros(3), x=torch.ones(3), bias=torch.ones(3))
    assert [x.tolist() for x in got] == [[2, 2, 2], [1, 1, 1]]


def test_none_is_what_false_is() -> None:
    guard = ConstantGuard({"use_cache": False})
    guard(None)
    with pytest.raises(ModelError, match="use_cache"):
        guard(True)


def test_arrays_are_compared_whole() -> None:
    guard = ConstantGuard({"scales": np.array([1.0, 2.0])})
    guard(np.array([1.0, 2.0]))
    for other in (np.array([1.0, 3.0]), None):
        with pytest.raises(ModelError, match="argument 'scales'"):
            guard(other)


@dataclass
class Registered:
    """A result that torch.export knows, whose fields that are None it leaves out."""

    logits: Tensor
    hidden: Tensor | None = None
    scores: Tensor | None = None


register_dataclass(Registered)


def test_registered_dataclasses_keep_their_fields() -> None:
    example = Registered(torch.ones(1), None, torch.ones(1))
    got = OutputForm(example)(*torch.arange(2))
    assert (int(got.logits), got.hidden, int(got.scores)) == (0, None, 1)


def test_results_are_built_with_other_tensors() -> None:
    example = Result(torch.ones(1), (torch.ones(1), torch.ones(1)))
    assert not is_plain(example)
    got = OutputForm(example)(*torch.arange(3))
    assert isinstance(got, Result)
    assert (int(got.scores), [int(x) for x in got.state], got.name) == (0, [1, 2], None)
