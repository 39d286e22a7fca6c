"""Functions ask or tell all observers in a module at once.

Whether a value was NaN or infinite is asked once, and no step of training waits for the answer.
Before a distributed run is converted, what its ranks know apart is brought together.
"""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from onnxq.errors import CalibrationError
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.numerics.ranks import check_not_sharded, has_ranks, mean_of_ranks


def forget_left_out(module: nn.Module) -> None:
    """For model.apply: accepts that batches with NaN or infinite values were left out."""
    if isinstance(module, Observing) and hasattr(module, "left_out"):
        module.left_out.zero_()


def check_observed_values(module: nn.Module) -> None:
    """Asks all observers in a module whether they were shown NaN or infinite values.

    Raises:
        CalibrationError: one was; the message names it, and how many others.
    """
    parts = {name: part for name, part in module.named_modules() if isinstance(part, Observing)}
    found: list[str] = []
    for name, part in parts.items():
        try:
            part.check_left_out()
        except CalibrationError as error:
            found.append(f"'{name}': {error}" if name else str(error))
    if found:
        others = f" So it is at {len(found) - 1} more." if len(found) > 1 else ""
        raise CalibrationError(found[0] + others)


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
