"""Arrays for the operators' cases: the same on every machine and run."""

import numpy as np
import numpy.typing as npt

from onnxq.operator.rule import Case


def normal(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Normally distributed float32 of that shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> npt.NDArray[np.int64]:
    """A vector of int64: axes, shapes, pads."""
    return np.array(values, np.int64)


def integers(*shape: int, dtype: str = "uint8", seed: int = 0) -> npt.NDArray[np.integer]:
    """Uniform over the whole integer type, both ends included."""
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, np.dtype(dtype), endpoint=True)


def scales(*values: float) -> npt.NDArray[np.float32]:
    """One scale: rank 0; several: a vector."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def zero(point: int, dtype: str = "uint8") -> npt.NDArray[np.integer]:
    """A zero point of rank 0."""
    return np.array(point, dtype)


def ints32(*values: int) -> npt.NDArray[np.int32]:
    """A vector of int32: a bias."""
    return np.array(values, np.int32)


def shapes(case: Case) -> list[tuple[int, ...]]:
    """Shapes of the inputs that a case has, for the same case of an operator on integers."""
    return [x.shape for x in case.inputs if x is not None]
