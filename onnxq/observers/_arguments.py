"""Arguments of observers, in the one form that compares and saves."""

from __future__ import annotations

import numpy as np

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import QConfigError, nearest
from onnxq.qparams import QScheme

FLOAT16 = np.dtype(np.float16)  # NoopObserver's: stored as float16, so there is nothing to observe
Argument = QDType | np.dtype[np.float16] | QScheme | int | float | str | None
WITHOUT_MEANING = {
    "factory_kwargs": "arrays are NumPy's; there are no devices or factories",
    "is_dynamic": "dynamic quantization has no observers of activations; use QConfigDynamic",
    "custom_op_name": "it named an operator of TorchScript's graph mode",
    "compute_dtype": "it named a type of torch's dynamic kernels",
}


def as_qdtype(value: object) -> QDType:
    """The QDType meant by a QDType, a name, or a torch dtype (whose text is 'torch.quint8').

    Raises:
        QConfigError: the name is not known.
    """
    return value if isinstance(value, QDType) else dtypes.find(str(value).removeprefix("torch."))


def as_qscheme(value: object) -> QScheme:
    """The QScheme meant by a QScheme, a name, or a torch qscheme.

    Raises:
        QConfigError: the name is not known.
    """
    if isinstance(value, QScheme):
        return value
    name, known = str(value).removeprefix("torch."), [s.value for s in QScheme]
    if name not in known:
        raise QConfigError(
            f"qscheme '{name}' is not known; known: {', '.join(known)}.{nearest(name, known)}"
        )
    return QScheme(name)


def unknown_argument(name: str, key: str, accepted: list[str]) -> str:
    if key in WITHOUT_MEANING:
        return f"{name}: '{key}' has no meaning here ({WITHOUT_MEANING[key]}); leave it out."
    return (
        f"{name}: got argument '{key}'; it takes {', '.join(accepted) or 'none'}."
        f"{nearest(key, accepted)}"
    )


def as_argument(key: str, value: object) -> Argument:
    """The value in the one form that compares and saves: types of onnxq, not torch's or texts."""
    if key == "dtype":
        is_half = value == FLOAT16 or str(value).removeprefix("torch.") == "float16"
        return FLOAT16 if is_half else as_qdtype(value)
    if key == "qscheme":
        return as_qscheme(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, int | float | str | QDType | QScheme):
        return value
    raise QConfigError(
        f"argument '{key}' is a {type(value).__name__}; a number, a text or None can be saved."
    )


def as_text(value: Argument) -> int | float | str | None:
    if isinstance(value, QScheme):
        return value.value
    return str(value) if isinstance(value, QDType | np.dtype) else value
