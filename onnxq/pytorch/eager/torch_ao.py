"""Parts of torch.ao that existing code holds, as onnxq's: QConfigs, stubs, fused float modules.

Told by their module and class names, so that torch.ao need not be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq.errors import QConfigError, nearest
from onnxq.observers import (
    MovingAverageMinMaxObserver,
    NoopObserver,
    Observer,
    ObserverSpec,
    find_observer,
)
from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.hooks import carry_over
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.nn.intrinsic import FUSED
from onnxq.qconfig import Entry, FakeQuantSpec, Part, QConfig, QConfigDynamic

if TYPE_CHECKING:
    from torch import nn

FOREIGN = ("torch.ao.", "torch.quantization", "torch.nn.intrinsic", "torch.nn.quantized")
TORCH_FLOAT16 = "torch.float16"
_MODULES: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (QuantStub, DeQuantStub, FloatFunctional, *FUSED)
}
_FAKE_QUANTIZE = ("FakeQuantize", "FusedMovingAvgObsFakeQuantize")
_WITHOUT_MEANING = ("factory_kwargs", "is_dynamic", "compute_dtype", "custom_op_name")


def own_module(mod: nn.Module) -> nn.Module:
    """The module of onnxq for torch.ao's stub, FloatFunctional or fused module; else itself."""
    kind = type(mod)
    own = _MODULES.get(kind.__name__)
    if own is None or not kind.__module__.startswith(FOREIGN) or hasattr(mod, "weight_fake_quant"):
        return mod
    made = own(*mod.children()) if own in FUSED else own()
    return carry_over(mod, made)


def own_entry(value: object, where: str) -> Entry:
    """The QConfig or QConfigDynamic of onnxq for a module's `qconfig`.

    Args:
        value: onnxq's own, None, or torch.ao's QConfig.
        where: names the module, for messages.

    Raises:
        QConfigError: another value; an observer that onnxq does not have.
    """
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
        return QConfigDynamic(_own_part(parts.weight, f"{where}: weight"))
    return QConfig(
        _own_part(parts.activation, f"{where}: activation"),
        _own_part(parts.weight, f"{where}: weight"),
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


def _own_part(value: object, where: str) -> Part:
    if isinstance(value, ObserverSpec | FakeQuantSpec):
        return value
    kind, arguments = _unwrapped(value)
    name = getattr(kind, "__name__", repr(kind))
    if name not in _FAKE_QUANTIZE:
        return _own_observer(kind, arguments, where)
    inner, own = _unwrapped(arguments.pop("observer", MovingAverageMinMaxObserver))
    return FakeQuantSpec(_own_observer(inner, {**own, **arguments}, where))


def _own_observer(kind: Any, arguments: dict[str, Any], where: str) -> ObserverSpec:
    name = getattr(kind, "__name__", repr(kind))
    if name == "PlaceholderObserver" and str(arguments.get("dtype")) == TORCH_FLOAT16:
        return NoopObserver.with_args(dtype=TORCH_FLOAT16)
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
