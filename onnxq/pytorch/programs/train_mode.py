"""Notes on what a training graph lacks of a module's train mode.

Batch norm and dropout are in the graph. Layers that are left out at random, masks that are drawn,
results of auxiliary heads are not: the graph is made of eval mode. One run of each with the same
random numbers tells.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.programs.dropouts import seeded_results

if TYPE_CHECKING:
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
    ours = seeded_results(copy.deepcopy(graph).train(), program.bound)
    if len(ours) == len(run.results) and all(map(_close, ours, run.results)):
        return ()
    return (
        "in train mode, forward computes more than batch norm and dropout add to eval mode (layers "
        "left out at random, masks that are drawn, results of auxiliary heads): the prepared model "
        "trains without it.",
    )


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    bound = (
        _TOLERANCE * float(other.detach().abs().nan_to_num(0, 0, 0).max()) if other.numel() else 0.0
    )
    return torch.allclose(one, other, rtol=0.0, atol=bound, equal_nan=True)
