"""Notes on what a training graph lacks of a module's train mode.

Batch norm, dropout and updates of buffers are in the graph. Layers that are left out at random,
masks that are drawn, results of auxiliary heads are not: the graph is made of eval mode. One run of
each with the same random numbers tells.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from onnxq.errors import UnsupportedError, listed
from onnxq.pytorch.programs.dropouts import LowestDraws, seeded_run, tensor_paths

if TYPE_CHECKING:
    from torch import nn

    from onnxq.pytorch.programs.graph_module import TrainingGraph
    from onnxq.pytorch.programs.program import Program

_TOLERANCE = 1e-3  # of the largest value: float sums in another order; other numbers differ by more


def train_mode_notes(graph: TrainingGraph, program: Program) -> tuple[str, ...]:
    """Notes on what train mode does and the graph does not; empty where they agree.

    Args:
        graph: of `training_graph`, without quantizers; left as it is.
        program: that it was made of.
    """
    run = program.dropouts
    if run.failure:
        return (
            f"train mode fails on the example inputs ({run.failure}), so that rates of dropout are "
            "those that eval mode shows.",
        )
    trained = copy.deepcopy(graph).train()
    with LowestDraws():
        ours, drawn = seeded_run(trained, program.bound)
    found = []
    are_same = len(ours) == len(run.results) and all(map(_close, ours, run.results))
    if not are_same or drawn != run.drawn:  # a layer may have been drawn to stay in
        found.append(
            "in train mode, forward computes more than batch norm and dropout add to eval mode "
            "(layers left out at random, masks that are drawn, results of auxiliary heads): the "
            "prepared model trains without it."
        )
    held = dict(trained.named_buffers())
    left = [name for name, x in run.buffers.items() if name in held and not _close(held[name], x)]
    if left and not found:  # other results may lead to other buffers
        found.append(
            f"in train mode, forward updates {listed(left)} otherwise than the prepared model, "
            "which has the operators of eval mode. Update them outside of forward."
        )
    return tuple(found)


def check_same_form(model: nn.Module, program: Program) -> None:
    """Passes a model whose forward returns as many tensors in train mode as in eval mode.

    A model in eval mode is asked for what that mode returns.

    Args:
        model: as it was given.
        program: of it.
    """
    run = program.dropouts
    if run.failure or not model.training or run.paths == tensor_paths(program.outputs):
        return
    in_train, in_eval = len(run.paths), len(tensor_paths(program.outputs))
    raise UnsupportedError(
        f"forward of {type(model).__name__} returns {_counted(in_train)} in train mode and "
        f"{_counted(in_eval)} in eval mode; the prepared model is one graph, that of eval mode. "
        "Let forward return the same in both (turn auxiliary heads off, or return them in eval "
        "mode, too), or call model.eval() ahead of prepare_qat, to train what eval mode computes."
    )


def _counted(tensors: int) -> str:
    return "1 tensor" if tensors == 1 else f"{tensors} tensors"


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    bound = (
        _TOLERANCE * float(other.detach().abs().nan_to_num(0, 0, 0).max()) if other.numel() else 0.0
    )
    return torch.allclose(one, other, rtol=0.0, atol=bound, equal_nan=True)
