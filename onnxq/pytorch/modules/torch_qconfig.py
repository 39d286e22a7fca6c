"""QConfigs of torch.ao and of onnxq.pytorch.quantization, converted to onnxq's own.

Module and class names tell such a QConfig, so that torch.ao need not be installed.
"""

from typing import Any

from torch import nn

from onnxq.errors import QConfigError, nearest
from onnxq.observers import (
    MovingAverageMinMaxObserver,
    NoopObserver,
    Observer,
    ObserverSpec,
    find_observer,
)
from onnxq.pytorch.numerics.own_module import ModuleSpec, is_observer
from onnxq.qconfig import Entry, FakeQuantSpec, Part, QConfig, QConfigDynamic

FOREIGN = (
    *("torch.ao.", "torch.quantization", "torch.nn.intrinsic", "torch.nn.quantized"),
    "onnxq.pytorch.quantization",  # torch.quantization's names, with torch's meaning
)
TORCH_FLOAT16 = "torch.float16"
_FAKE_QUANTIZE = ("FakeQuantize", "FusedMovingAvgObsFakeQuantize")
_WITHOUT_MEANING = ("factory_kwargs", "is_dynamic", "compute_dtype", "custom_op_name")


def own_entry(value: object, where: str) -> Entry:
    """The QConfig or QConfigDynamic of onnxq for a module's `qconfig`."""
    if value is None or isinstance(value, QConfig | QConfigDynamic):
        return value
    parts: Any = value
    if not (type(value).__module__.startswith(FOREIGN) and hasattr(value, "weight")):
        raise QConfigError(
            f"{where}: got qconfig {value!r}; wanted a QConfig, a QConfigDynamic or None (float)."
        )
    activation, arguments = _unwrapped(getattr(parts, "activation", None))
    dynamic = arguments.get("is_dynamic") or arguments.get("compute_dtype")
    if activation is None or dynamic or type(value).__name__ == "QConfigDynamic":
        return QConfigDynamic(own_part(parts.weight, f"{where}: weight"))
    return QConfig(
        own_part(parts.activation, f"{where}: activation"),
        own_part(parts.weight, f"{where}: weight"),
    )


def _unwrapped(value: object) -> tuple[Any, dict[str, Any]]:
    """(class, arguments) of what with_args and functools.partial have wrapped."""
    arguments: dict[str, Any] = {}
    wrapped: Any = value
    while not isinstance(wrapped, type) and (partial := getattr(wrapped, "p", wrapped)) is not None:
        if not hasattr(partial, "func"):
            break
        arguments = {**partial.keywords, **arguments}
        wrapped = partial.func
    return wrapped, arguments


def own_part(value: object, where: str) -> Part:
    """The observer or FakeQuantize of onnxq for a part of a QConfig."""
    if isinstance(value, ObserverSpec | FakeQuantSpec):
        return value
    kind, arguments = _unwrapped(value)
    if kind is nn.Identity:  # the documented way to say: nothing
        return NoopObserver.with_args()
    name = getattr(kind, "__name__", repr(kind))
    if _is_users(kind):
        spec = ModuleSpec(name, (), kind, arguments)
        return spec if is_observer(kind) else FakeQuantSpec(spec)
    if name not in _FAKE_QUANTIZE:
        return _own_observer(kind, arguments, where)
    inner, own = _unwrapped(arguments.pop("observer", MovingAverageMinMaxObserver))
    arguments = {**own, **arguments}
    if _is_users(inner):
        return FakeQuantSpec(ModuleSpec(inner.__name__, (), inner, arguments))
    return FakeQuantSpec(_own_observer(inner, arguments, where))


def _is_users(kind: Any) -> bool:
    """Whether a class is a module of the user's own, with forward and calculate_qparams."""
    if not isinstance(kind, type) or kind.__module__.startswith((*FOREIGN, "onnxq.pytorch.")):
        return False
    return issubclass(kind, nn.Module) and hasattr(kind, "calculate_qparams")


def _own_observer(kind: Any, arguments: dict[str, Any], where: str) -> ObserverSpec:
    name = getattr(kind, "__name__", repr(kind))
    if name == "PlaceholderObserver":
        is_half = str(arguments.get("dtype")) == TORCH_FLOAT16
        return NoopObserver.with_args(**{"dtype": TORCH_FLOAT16} if is_half else {})
    try:
        own: type[Observer] = find_observer(name)
    except QConfigError:
        known = [o.__name__ for o in Observer.__subclasses__()]
        raise QConfigError(
            f"{where}: torch's {name} has no counterpart in onnxq.observers. Use one of "
            f"{', '.join(sorted(known))}.{nearest(name, known)}"
        ) from None
    given = {k: v for k, v in arguments.items() if k not in _WITHOUT_MEANING and v is not None}
    return own.with_args(**given)
