"""Arguments of a QuantDescriptor: each is checked, and gets the type that the descriptor keeps."""

from __future__ import annotations

import numpy as np

from onnxq.core.arrays import Singles
from onnxq.errors import QConfigError

# --- The documented TypeError and ValueError, which are onnxq's QConfigError too (exit code 5).


class QuantTypeError(QConfigError, TypeError):
    """An argument of a type that quantization does not take, or the wrong kind of tensor."""


class QuantValueError(QConfigError, ValueError):
    """An argument whose value no quantization has: a negative amax, 1 bit, a shape that differs."""


Axis = int | tuple[int, ...] | None

MIN_BITS, MAX_BITS = 2, 16
_METHODS = ("max", "histogram")


def as_num_bits(value: object) -> int:
    """The number of bits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        if value == (4, 3):
            raise QuantTypeError(
                "num_bits=(4, 3) is float8, which ONNX Runtime's CPU does not compute with; wanted "
                "an integer, 2 to 16. To see what float8 does to values, call scaled_e4m3(x, amax)."
            )
        raise QuantTypeError(f"num_bits: got {said(value)}; wanted an integer, 2 to 16.")
    if not MIN_BITS <= value <= MAX_BITS:
        raise QuantValueError(f"num_bits: got {value}; wanted {MIN_BITS} to {MAX_BITS}.")
    return int(value)


def said(value: object) -> str:
    """The value and its type, for a message."""
    return f"{value!r}, a {type(value).__name__}"


def as_bool(name: str, value: object) -> bool:
    """The value of a switch."""
    if not isinstance(value, bool | np.bool_):
        raise QuantTypeError(f"{name}: got {said(value)}; wanted True or False.")
    return bool(value)


def as_axis(value: object) -> Axis:
    """The axis or axes."""
    axes = value if isinstance(value, tuple | list) else [] if value is None else [value]
    if any(isinstance(a, bool) or not isinstance(a, int | np.integer) for a in axes):
        raise QuantTypeError(f"axis: got {said(value)}; wanted None, an int or a tuple of int.")
    numbers = tuple(int(str(a)) for a in axes)
    if len(set(numbers)) != len(numbers):
        raise QuantValueError(f"axis: got {value!r}, which names an axis twice.")
    if isinstance(value, tuple | list):
        return numbers
    return None if value is None else numbers[0]


def as_amax(value: object) -> Singles | None:
    """The fixed range, float32, which cannot be written to; None: it is calibrated."""
    if value is None:
        return None
    if not isinstance(value, float | list | np.ndarray):
        raise QuantTypeError(f"amax must be float, list or ndarray; got {said(value)}.")
    try:
        amax = np.array(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise QuantTypeError(f"amax: got {value!r}, which holds no floats: {error}.") from error
    if amax.size == 0 or not np.isfinite(amax).all() or (amax < 0).any():
        raise QuantValueError(f"amax: got {value!r}; wanted finite values >= 0 (in float32).")
    amax.setflags(write=False)
    return amax


def as_scale_amax(value: object) -> float | None:
    """The factor on amax; None: there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
        raise QuantTypeError(f"scale_amax: got {said(value)}; wanted a float or None.")
    if not 0 < value < float("inf"):
        raise QuantValueError(f"scale_amax: got {value}; wanted a positive number.")
    return float(value)


def as_method(value: object) -> str:
    """The name of a calibrator."""
    if not isinstance(value, str):
        raise QuantTypeError(f"calib_method: got {said(value)}; wanted a string.")
    if value not in _METHODS:
        raise QuantValueError(
            f"calib_method: got '{value}'; wanted {' or '.join(_METHODS)}. (percentile, mse and "
            'entropy are ways to read a histogram: load_calib_amax("entropy").)'
        )
    return value
