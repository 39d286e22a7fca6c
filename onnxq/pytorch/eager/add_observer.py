"""Gives modules the FakeQuantize that their result goes through."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import UnsupportedError, listed
from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.places import carry_over, exchanged, places
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantWrapper
from onnxq.pytorch.nn.intrinsic import FUSED
from onnxq.pytorch.nn.quantized.observed import observe_output
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.pytorch.train.conversion import STATIC_MAPPING
from onnxq.qconfig import QConfig

# --- Types of modules that `prepare` looks at: whose result is observed, what is not looked into.

IN_FLOAT_BETWEEN_INTEGERS: tuple[type[nn.Module], ...] = (
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.PReLU,
    nn.SiLU,
    nn.Tanh,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.Upsample,
    nn.UpsamplingBilinear2d,
)
"""Types without a quantized form: the float module computes, and its result is rounded."""

# FloatFunctional has a place for its observer, the others round by themselves or not at all
_OBSERVED_OTHERWISE = {DeQuantStub, FakeQuantize, FloatFunctional}

COMPUTING: tuple[type[nn.Module], ...] = (
    *(
        kind
        for kind, quantized in STATIC_MAPPING.items()
        if kind not in _OBSERVED_OTHERWISE and not getattr(quantized, "keeps_qparams", False)
    ),
    *IN_FLOAT_BETWEEN_INTEGERS,
)
"""Types whose result is observed, or fake-quantized."""

UNFOLDED = tuple(kind for kind in FUSED if kind.folds_batch_norm())
"""Batch norm that was fused in train mode."""

WHOLE = (*COMPUTING, FakeQuantize, DeQuantStub, nn.MultiheadAttention, *UNFOLDED)
"""Types that are not looked into."""


def add_observer_(
    module: nn.Module,
    qconfig_propagation_list: Collection[type[nn.Module]] | None = None,
    non_leaf_module_list: Collection[type[nn.Module]] | None = None,
    device: torch.device | str | None = None,
    custom_module_class_mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
) -> None:
    """Gives the modules in `module` that have a qconfig an `activation_post_process`.

    A module with weights that is of no such type stays in float, with a warning.

    Args:
        module: changed in place.
        qconfig_propagation_list: types that get one; None: COMPUTING.
        non_leaf_module_list: types with modules in them that get one.
        device: of the new modules; None: that of the parameters.
        custom_module_class_mapping: {type: type with from_float} that take the place of others.
    """
    computing = COMPUTING if qconfig_propagation_list is None else tuple(qconfig_propagation_list)
    if device is None:
        device = next((p.device for p in module.parameters()), None)
    rules = _Rules(
        computing, tuple(non_leaf_module_list or ()), custom_module_class_mapping or {}, device
    )
    left = _observe(module, "", rules, {})
    if left and qconfig_propagation_list is None:
        warnings.warn(
            f"{listed(left)}: no quantized form, so that they stay in float. Set their qconfig to "
            "None to say so; their input and output cross a DeQuantStub and a QuantStub.",
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Rules:
    """The arguments of add_observer_."""

    computing: tuple[type[nn.Module], ...]
    non_leaf: tuple[type[nn.Module], ...]
    custom: Mapping[type[nn.Module], type[nn.Module]]
    device: torch.device | str | None


def _observe(
    module: nn.Module, name: str, rules: _Rules, done: dict[nn.Module, nn.Module]
) -> list[str]:
    """Attaches observers to the module and those in it; names of what stays in float."""
    if module in done or isinstance(module, FakeQuantize):
        return []
    done[module] = module
    kind = type_before_parametrizations(module)
    left: list[str] = []
    if isinstance(getattr(module, "qconfig", None), QConfig):
        wanted = (*rules.computing, *rules.non_leaf)
        if kind in wanted or isinstance(module, FloatFunctional):
            attach_observer(module, rules.device)
        elif _has_weights(module):
            left.append(f"{name or 'the model'} ({kind.__name__})")
            module.qconfig = None  # type: ignore[assignment]  # modules take any attribute
    if kind in rules.non_leaf or isinstance(module, (*WHOLE, FloatFunctional)):
        return left
    for short, child in places(module):
        made = done[child] if child in done else _custom(child, rules)
        if made is not child:
            setattr(module, short, made)
            done[child] = done[made] = made
        left += _observe(made, f"{name}.{short}" if name else short, rules, done)
    return left


def _custom(module: nn.Module, rules: _Rules) -> nn.Module:
    """The user's observed module in place of the module, if there is one for its type."""
    kind = rules.custom.get(type_before_parametrizations(module))
    if kind is None or not isinstance(getattr(module, "qconfig", None), QConfig):
        return module
    made: nn.Module = kind.from_float(module)  # type: ignore[attr-defined]  # of each class in the mapping
    attach_observer(carry_over(module, made), rules.device)
    return made


def _has_weights(module: nn.Module) -> bool:
    """Parameters of its own, and nothing in it that could be quantized by itself."""
    own = next(module.parameters(recurse=False), None) is not None
    return own and (isinstance(module, nn.MultiheadAttention) or not list(module.children()))


def attach_observer(module: nn.Module, device: torch.device | str | None) -> None:
    """Lets the module's result go through a FakeQuantize of its qconfig's activation."""
    qconfig: Any = module.qconfig
    if isinstance(getattr(module, "activation_post_process", None), FakeQuantize):
        raise UnsupportedError(
            f"{type(module).__name__} has an activation_post_process: the model is prepared. "
            "Prepare the float model."
        )
    if qconfig.activation_observer.name == "NoopObserver":
        return
    fake = fake_quantize_module(qconfig.activation)
    module.activation_post_process = fake if device is None else fake.to(device)
    if not isinstance(module, FloatFunctional):
        module.register_forward_hook(observe_output, prepend=True)


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """Wraps each leaf that has a qconfig in a QuantWrapper; in place, but for a leaf itself."""
    leaves = [
        part
        for part in module.modules()
        if not list(part.children()) and getattr(part, "qconfig", None)
    ]
    return exchanged(module, {leaf: QuantWrapper(leaf) for leaf in leaves})


def get_observer_dict(mod: nn.Module, target_dict: dict[str, nn.Module], prefix: str = "") -> None:
    """Collects the activation_post_process modules in `mod`, by their names.

    Args:
        mod: prepared.
        target_dict: grows by {name + ".activation_post_process": module}.
        prefix: of the names.
    """
    for name, part in mod.named_modules(prefix=prefix):
        found = getattr(part, "activation_post_process", None)
        if isinstance(found, FakeQuantize) and not isinstance(part, FakeQuantize):
            target_dict[".".join(filter(None, (name, "activation_post_process")))] = found
