"""Keeps the train and eval modes of submodules when a module is prepared for training.

norm.eval() in a model in train mode               fine-tuning with frozen statistics
def train(self, mode): super(); norm.eval()        the same, whenever train() is called
model.backbone.eval()                              until somebody calls train()
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import listed
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, copied
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm, freeze_bn_stats, hold
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize

_FAR = 16  # times the range of eval mode: of trained networks they are alike


@dataclass(frozen=True, slots=True)
class Modes:
    """Paths of submodules that are in eval mode, and of batch norms that stay there."""

    in_eval: frozenset[str]
    frozen: frozenset[str]

    @property
    def notes(self) -> tuple[str, ...]:
        """A note that names the batch norms that are frozen."""
        if not self.frozen:
            return ()
        return (
            f"batch norm {listed(sorted(self.frozen))} is in eval mode within a model in train "
            "mode: its statistics stay as they are in training. model.apply(update_bn_stats) lets "
            "them move.",
        )


def modes_of(model: nn.Module) -> Modes:
    """Modes of a float model's submodules; of one in eval mode, those that its train() leaves."""
    frozen = set(_left_in_eval(model))
    if not model.training:
        return Modes(frozenset(), frozenset(frozen))
    in_eval = [name for name, part in model.named_modules() if not part.training]
    for name in in_eval:
        parent = model.get_submodule(name.rpartition(".")[0])
        if isinstance(model.get_submodule(name), _BatchNorm) and parent.training:
            frozen.add(name)
    return Modes(frozenset(in_eval), frozenset(frozen))


def _left_in_eval(model: nn.Module) -> Iterable[str]:
    """Batch norms that a train() of the model's own leaves in eval mode."""
    if all(type(part).train is nn.Module.train for part in model.modules()):
        return []
    trained = copied(model).train()
    norms = [(name, part) for name, part in trained.named_modules() if isinstance(part, _BatchNorm)]
    return [name for name, norm in norms if not norm.training]


def cover_train_mode(prepared: nn.Module, bound: BoundInputs) -> tuple[str, ...]:
    """Widens ranges that batch norm's batch statistics exceed by far; a note on how many.

    Where running statistics are those of other data, as in networks that were never trained,
    activations of train mode are many times those of eval mode. Clipped, they have no variance left
    in a batch, and batch norm multiplies gradients by 1 / sqrt(eps), layer by layer.
    """
    if not any(isinstance(part, _BatchNorm) and part.training for part in prepared.modules()):
        return ()
    probe = copy.deepcopy(prepared)
    seen = [part for part in probe.modules() if isinstance(part, FakeQuantize)]
    for part in seen:
        part.eval()  # ranks of a distributed run are not asked
        part.disable_fake_quant().enable_observer().reset_min_max_vals()
    try:
        with torch.no_grad(), torch.random.fork_rng(()):
            probe(*bound.args, **bound.kwargs)
    except FORWARD_RAISES:  # a single row, of which batch norm has no statistics
        return ()
    count = 0
    fakes = [part for part in prepared.modules() if isinstance(part, FakeQuantize)]
    for fake, other in zip(fakes, seen, strict=True):
        ranges = [getattr(part, "min_max", None) for part in (fake, other)]
        if fake.is_replicated or any(x is None or x.ndim > 1 for x in ranges):
            continue
        own, wide = (float(x.max()) for x in ranges)  # type: ignore[union-attr]  # tensors
        if math.isfinite(wide) and wide > _FAR * own:
            fake.widen(other.min_max)
            count += 1
    if not count:
        return ()
    return (
        f"{count} tensors are over {_FAR} times as large with the statistics of a batch as with "
        "running ones: their ranges cover both. Train on batches that fit the statistics, or keep "
        "batch norm in eval mode.",
    )


def restore_modes(prepared: nn.Module, modes: Modes) -> None:
    """Puts parts of a prepared model, which is in train mode, into the modes of the float model."""
    owners = {part.bn: part for part in prepared.modules() if isinstance(part, WithBatchNorm)}
    parts = dict(prepared.named_modules(remove_duplicate=False))
    for name in modes.frozen & parts.keys():
        norm = parts[name]
        freeze_bn_stats(owners.get(norm) or hold(norm))
    for name in modes.in_eval & parts.keys():
        parts[name].training = False
