"""Notes on what a training graph lacks of a module's train mode.

Batch norm, dropout and updates of buffers are in the graph. Layers that are left out at random,
masks that are drawn, results of auxiliary heads are not: the graph is made of eval mode. One run of
each with the same random numbers tells.
"""

import copy
import functools
from typing import Any

import torch
from torch import nn

from onnxq.errors import ModelError, UnsupportedError, first_line, listed
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import alike, eval_mode, flatten
from onnxq.pytorch.programs.dropouts import LowestDraws, same_seed, seeded_run, tensor_paths
from onnxq.pytorch.programs.graph_module import TrainingGraph
from onnxq.pytorch.programs.program import Program, same_buffers

_is_close = functools.partial(
    alike, share=1e-3
)  # of the largest value: float sums in another order; other numbers differ by more


def train_mode_notes(graph: TrainingGraph, program: Program) -> tuple[str, ...]:
    """Notes on what train mode does and the graph does not; empty where they agree."""
    run = program.dropouts
    if run.failure:
        return (
            f"train mode could not be looked at on the example inputs ({run.failure}): rates of "
            "dropout are those that eval mode shows.",
        )
    trained = copy.deepcopy(graph).train()
    with LowestDraws():
        ours, drawn = seeded_run(trained, program.bound)
    held = dict(trained.named_buffers())
    left = [n for n, x in run.buffers.items() if n in held and not _is_close(held[n], x)]
    are_same = len(ours) == len(run.results) and all(map(_is_close, ours, run.results))
    if not are_same or drawn != run.drawn:  # a layer may have been drawn to stay in
        before = dict(graph.named_buffers())
        idle = [name for name in left if torch.equal(held[name], before[name])]
        others = f" It leaves {listed(idle)} as they are, too." if idle else ""
        return (
            "in train mode, forward computes more than batch norm and dropout add to eval mode "
            "(layers left out at random, masks that are drawn, results of auxiliary heads): the "
            f"prepared model trains without it.{others}",
        )
    if not left:
        return ()
    return (
        f"in train mode, forward updates {listed(left)} otherwise than the prepared model, "
        "which has the operators of eval mode. Update them outside of forward.",
    )


def row_notes(graph: TrainingGraph, program: Program) -> tuple[str, ...]:
    """A note where forward takes other numbers of rows, and torch.export's record does not."""
    try:
        with eval_mode(graph), same_buffers(graph):
            batch_axes(graph, program.bound)
    except ModelError:
        return (
            "forward, or torch.export's record of it, fixes the number of rows (a mask may pick "
            "them): the prepared model takes as many as the example inputs have. Train it on "
            "batches of that size, and export it with dynamic_axes={}.",
        )
    return ()


def check_same_form(model: nn.Module, program: Program) -> None:
    """Passes a model whose forward returns as many tensors in train mode as in eval mode."""
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


# --- Notes on parameters whose gradients in a training graph are others than those of forward.
#
# Code can change gradients without an operator: by a hook on a tensor, or a torch.autograd.Function
# that the graph cannot hold. One backward pass of each, with the same numbers behind, tells.

_EQUAL = 1e-3  # of a gradient's norm: float sums in another order; other rules differ by more
_STEP = 2.0**-16  # of each weight: 2**8 of the float32 steps by which sums differ
_MARGIN = 16.0  # a gradient that is 0 but for rounding differs by one draw of it from another

Gradients = dict[str, torch.Tensor]


def gradient_notes(model: nn.Module, graph: TrainingGraph, program: Program) -> tuple[str, ...]:
    """A note that names the parameters with other gradients; empty where there are none.

    A gradient counts as another one where the difference exceeds what it moves by when each weight
    moves by 2**-16 of itself.
    """
    try:
        wanted, got = (_gradients(module, program.bound) for module in (model, graph))
    except RuntimeError as error:  # of reentrant checkpoints, say, which want a whole backward
        return (f"gradients were not compared with forward's: {first_line(error)}",)
    unlike = [name for name, x in wanted.items() if _norm(x - got[name]) > _EQUAL * _norm(x)]
    if not unlike:
        return ()
    moved = _gradients(_moved(graph), program.bound)
    changed = [
        name
        for name in unlike
        if _norm(wanted[name] - got[name]) > _MARGIN * _norm(moved[name] - got[name])
    ]
    if not changed:
        return ()
    return (
        f"gradients of {listed(changed)} are others in the prepared model than in forward, where "
        "something beside the operators changes them: a hook on a tensor or module, or a "
        "torch.autograd.Function that is called with more than tensors and numbers. It trains with "
        "those of the operators. Change gradients in a torch.autograd.Function, called with "
        "tensors and numbers alone.",
    )


def _gradients(module: nn.Module, bound: BoundInputs) -> Gradients:
    """Gradient of a sum of results, weighted at random, by parameter; 0 of those not read."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    cudnn: Any = torch.backends.cudnn  # its recurrent layers have no backward in eval mode
    with (
        eval_mode(module),
        same_buffers(module),
        same_seed(),
        cudnn.flags(enabled=False),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        results = flatten(nn.Module.__call__(module, *bound.args, **bound.kwargs))
        # not randn_like: that draws in the order of memory, which may be another one
        sums = [
            (y * torch.randn(y.shape, dtype=y.dtype, device=y.device)).sum()
            for y in results
            if y.requires_grad
        ]
        if not sums:
            return {name: torch.zeros_like(p) for name, p in trained.items()}
        total = torch.stack([x.double() for x in sums]).sum()
        found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if gradient is None else gradient.detach()
        for (name, p), gradient in zip(trained.items(), found, strict=True)
    }


def _moved(graph: TrainingGraph) -> TrainingGraph:
    """A copy whose weights are a little larger or smaller, at random."""
    made = copy.deepcopy(graph)
    with torch.no_grad(), same_seed():
        for p in made.parameters():
            p.mul_(1 + _STEP * torch.randn_like(p).sign())
    return made


def _norm(x: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(x.nan_to_num(0, 0, 0)))
