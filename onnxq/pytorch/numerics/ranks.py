"""Observers across the ranks of a distributed run.

While a model is trained, min and max of each activation are those of all ranks' tensors: one
all_reduce for each, so that scales are what one process would find in the whole batch. A moving
average is one of these common ranges. Weights are equal on all ranks, and need none. What is not
common then, running statistics of batch norm and observers that are NumPy, `synchronize_ranks`
brings together.
"""

import functools
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from onnxq.errors import UnsupportedError
from onnxq.observers import Observer

_SHARDING = ("DTensor", "FlatParameter")  # parameters of fully_shard, of FullyShardedDataParallel


def has_ranks() -> bool:
    """Whether this process is one of several of a default process group."""
    ready = distributed.is_available() and distributed.is_initialized()
    return ready and distributed.get_world_size() > 1


def widest_of_ranks(min_max: Tensor) -> Tensor:
    """Min and max of all ranks' tensors together.

    A collective operation: each rank has to come here, as with SyncBatchNorm. NaN becomes infinite,
    since the larger one of NaN and a number depends on their order.
    """
    _check_not_joined()
    widest = torch.nan_to_num(min_max, nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    distributed.all_reduce(widest, distributed.ReduceOp.MAX)
    return widest


def _check_not_joined() -> None:
    """Refuses `join`, in which a rank that is done stands in for gradients, and not for ranges."""
    if torch.compiler.is_compiling():
        return
    active: Any = DistributedDataParallel._active_ddp_module  # noqa: SLF001  # torch has no public one
    if active is not None and active._join_config.enable:  # noqa: SLF001  # likewise
        raise UnsupportedError(
            "DistributedDataParallel.join(): observers ask all ranks for their ranges, and a rank "
            "without batches does not answer. Give each rank the same number of batches, as "
            "DistributedSampler does (their sizes may differ), or disable_observer() first."
        )


def mean_of_ranks(values: Tensor) -> Tensor:
    """The mean over ranks, element by element, the same bits on each."""
    total = values.clone()
    distributed.all_reduce(total)
    return total.div_(distributed.get_world_size())


def merged_of_ranks(observer: Observer) -> Observer:
    """An observer that has seen what those of all ranks have, the same on each."""
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, observer.state())
    return functools.reduce(
        lambda one, other: one.merge(other), [observer.spec.restore(state) for state in states]
    )


def check_not_sharded(module: nn.Module, where: str) -> None:
    """Passes a module that holds its parameters whole."""
    for name, parameter in module.named_parameters():
        kinds = {kind.__name__ for kind in type(parameter).__mro__}
        kinds.add(type(parameter.data).__name__)
        if kinds.intersection(_SHARDING):
            raise UnsupportedError(
                f"{where}: '{name}' is a shard of a parameter (FSDP); scales of weights need whole "
                "weights. Train with DistributedDataParallel, or gather the parameters first: "
                "torch.distributed.checkpoint.state_dict.get_model_state_dict with "
                "full_state_dict=True, loaded into a module that is not sharded."
            )
