"""Arguments of observers, in the one form that compares and saves."""

import reprlib

import numpy as np

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import QConfigError, kind_of, nearest
from onnxq.qparams import QScheme

FLOAT16 = np.dtype(np.float16)  # NoopObserver's: stored as float16, so there is nothing to observe
# torch keeps float zero points for embeddings; ONNX's are integers
_SCHEMES = {"per_channel_affine_float_qparams": "per_channel_affine"}
Argument = QDType | np.dtype[np.float16] | QScheme | int | float | str | None
_PLAIN: dict[str, type | None] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "None": None,
}
WITHOUT_MEANING = {
    "factory_kwargs": "arrays are NumPy's; there are no devices or factories",
    "is_dynamic": "dynamic quantization has no observers of activations; use QConfigDynamic",
    "custom_op_name": "it named an operator of TorchScript's graph mode",
    "compute_dtype": "it named a type of torch's dynamic kernels",
}


def as_qdtype(value: object) -> QDType:
    """The QDType meant by a QDType, a name, or a torch dtype (whose text is 'torch.quint8')."""
    return value if isinstance(value, QDType) else dtypes.find(str(value).removeprefix("torch."))


def as_qscheme(value: object) -> QScheme:
    """The QScheme meant by a QScheme, a name, or a torch qscheme."""
    if isinstance(value, QScheme):
        return value
    name, known = str(value).removeprefix("torch."), [s.value for s in QScheme]
    name = _SCHEMES.get(name, name)
    if name not in known:
        raise QConfigError(
            f"qscheme '{name}' is not known; known: {', '.join(known)}.{nearest(name, known)}"
        )
    return QScheme(name)


def unknown_argument(name: str, key: str, accepted: list[str]) -> str:
    """The message on an argument that the observer of that name does not have."""
    if key in WITHOUT_MEANING:
        return f"{name}: '{key}' has no meaning here ({WITHOUT_MEANING[key]}); leave it out."
    return (
        f"{name}: got argument '{key}'; it takes {', '.join(accepted) or 'none'}."
        f"{nearest(key, accepted)}"
    )


def plain_kinds(annotation: object) -> tuple[type | None, ...]:
    """Plain types that an annotation names (`int | None`); () where it names others too."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    names = [name.strip() for name in (text or str(annotation)).split("|")]
    return tuple(_PLAIN[n] for n in names) if all(n in _PLAIN for n in names) else ()


def check_kind(name: str, key: str, value: object, annotation: object) -> None:
    """Guards a constructor against a value of another type than its annotation says.

    Dtypes and qschemes have been read by then: they pass for the texts that name them.
    """
    if isinstance(value, (QDType, QScheme)):
        return
    kinds = plain_kinds(annotation)
    given = {None if value is None else type(value)}
    if given == {int}:
        given.add(float)
    if kinds and given.isdisjoint(kinds):
        wanted = " or ".join("null" if kind is None else kind.__name__ for kind in kinds)
        raise QConfigError(
            f"{name}: {key} is {reprlib.repr(value)}, {kind_of(value)}; wanted {wanted}."
            f"{_as_number(value)}"
        )


def _as_number(text: object) -> str:
    """A hint for 1e-6, which YAML takes for a text."""
    try:
        number = float(text) if isinstance(text, str) else None
    except ValueError:
        return ""
    return "" if number is None else f" YAML takes '{text}' for a text; write {number:.6e}."


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
        f"argument '{key}' is {kind_of(value)}; a number, a text or None can be saved."
    )


def as_text(value: Argument) -> int | float | str | None:
    """The argument as files hold it: types and schemes by their names."""
    if isinstance(value, QScheme):
        return value.value
    return str(value) if isinstance(value, QDType | np.dtype) else value
