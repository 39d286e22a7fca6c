"""Brings together what ranks of a distributed run know apart, so that all convert to the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.modules.batchnorm import _NormBase

from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.numerics.ranks import check_not_sharded, has_ranks, mean_of_ranks

if TYPE_CHECKING:
    from torch import nn


def synchronize_ranks(module: nn.Module) -> None:
    """Gives every rank the same observers and running statistics; alone, it does nothing.

    Each rank calls it, after training and before convert. Histograms and other NumPy observers are
    merged, ranges are the widest of all ranks, moving averages and the running statistics of batch
    norm are averaged over the ranks. Parameters are DistributedDataParallel's: they are equal.

    Args:
        module: prepared; changed in place.
    Raises:
        UnsupportedError: its parameters are sharded.
        CalibrationError: the ranks have observers that do not fit together.
    """
    if not has_ranks():
        return
    check_not_sharded(module, "synchronize_ranks")
    for part in module.modules():
        if isinstance(part, Observing):
            part.synchronize()
        elif isinstance(part, _NormBase) and part.running_mean is not None:
            assert part.running_var is not None
            for statistic in (part.running_mean, part.running_var):
                statistic.copy_(mean_of_ranks(statistic))
