"""Prepares a module with stubs: observers for calibration, or fake-quantize modules for training.

    float module --prepare-------> observed module --data--> convert
    float module --prepare_qat---> fake-quantized module --training--> convert

Each module that computes new values gets one FakeQuantize for its result, `activation_post_process`
(of an observer alone it only observes). Modules that move values (MaxPool, Flatten, ReLU, Dropout)
get none: their result has the qparams of their input. Averages get one, unlike in torch, which
rounds them for the first time when the model is deployed.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError, QConfigError, UnsupportedError, listed
from onnxq.pytorch.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.pytorch.float_functional import FloatFunctional
from onnxq.pytorch.hooks import carry_over
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.propagation import propagate_qconfig_
from onnxq.pytorch.sources import watch_first_pass
from onnxq.pytorch.stubs import DeQuantStub, QuantStub, QuantWrapper
from onnxq.pytorch.torch_ao import own_module
from onnxq.qconfig import FakeQuantSpec, QConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch

QAT_MAPPING: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: qat.Conv1d,
    nn.Conv2d: qat.Conv2d,
    nn.Conv3d: qat.Conv3d,
    nn.Linear: qat.Linear,
    nn.Embedding: qat.Embedding,
    intrinsic.ConvBn1d: fused.ConvBn1d,
    intrinsic.ConvBn2d: fused.ConvBn2d,
    intrinsic.ConvBn3d: fused.ConvBn3d,
    intrinsic.ConvBnReLU1d: fused.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d: fused.ConvBnReLU2d,
    intrinsic.ConvBnReLU3d: fused.ConvBnReLU3d,
    intrinsic.ConvReLU1d: fused.ConvReLU1d,
    intrinsic.ConvReLU2d: fused.ConvReLU2d,
    intrinsic.ConvReLU3d: fused.ConvReLU3d,
    intrinsic.LinearReLU: fused.LinearReLU,
    intrinsic.LinearBn1d: fused.LinearBn1d,
}
"""What prepare_qat puts in the place of a float module with a qconfig."""

COMPUTING: tuple[type[nn.Module], ...] = (
    QuantStub,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.Linear,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ReLU6,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softmax,
    nn.Tanh,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.Upsample,
    nn.UpsamplingBilinear2d,
    intrinsic.ConvReLU1d,
    intrinsic.ConvReLU2d,
    intrinsic.ConvReLU3d,
    intrinsic.LinearReLU,
    intrinsic.BNReLU2d,
    intrinsic.BNReLU3d,
    *QAT_MAPPING.values(),
)
"""Types whose result is observed, or fake-quantized."""

_UNFOLDED = (
    intrinsic.ConvBn1d,
    intrinsic.ConvBn2d,
    intrinsic.ConvBn3d,
    intrinsic.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d,
    intrinsic.ConvBnReLU3d,
    intrinsic.LinearBn1d,
)
_WHOLE = (*COMPUTING, FakeQuantize, DeQuantStub, nn.MultiheadAttention, *_UNFOLDED)
"""Types that are not looked into."""


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Collection[type[nn.Module]] | None = None,
    observer_non_leaf_module_list: Collection[type[nn.Module]] | None = None,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model with observers; run data through it, then `convert` it.

    Args:
        model: with `qconfig` on it or on modules in it; QuantStub and DeQuantStub mark where its
            quantized part begins and ends. Batch norm is folded by `fuse_modules` in eval mode.
        inplace: changes the model itself.
        allow_list: types that are observed; None: COMPUTING.
        observer_non_leaf_module_list: types with modules in them whose result is observed.
        prepare_custom_config_dict: {"float_to_observed_custom_module_class": {type: type with
            from_float}}, and what propagate_qconfig_ reads.

    Raises:
        QConfigError: no module has a qconfig; one that is no QConfig.
        ModelError: fused batch norm, which is for training.
    """
    root = _own(model, inplace)
    custom = dict(prepare_custom_config_dict or {})
    propagate_qconfig_(root, None, custom)
    _check_qconfigs(root)
    unfolded = [n or type(m).__name__ for n, m in root.named_modules() if isinstance(m, _UNFOLDED)]
    if unfolded:
        raise ModelError(
            f"prepare: {listed(unfolded)} hold batch norm that was fused in train mode. Call "
            "model.eval() before fuse_modules, which then folds it into the weights; or train "
            "with prepare_qat."
        )
    observed = custom.get("float_to_observed_custom_module_class")
    add_observer_(root, allow_list, observer_non_leaf_module_list, None, observed)
    watch_first_pass(root)
    return root


def prepare_qat(
    model: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """The model with fake-quantized weights and activations; train it, then `convert` it.

    Args:
        model: in train mode, with `qconfig` on it or on modules in it, and stubs where its
            quantized part begins and ends. Layers with batch norm are fused by `fuse_modules`.
        mapping: {float type: type with from_float}; None: QAT_MAPPING.
        inplace: changes the model itself.

    Raises:
        ModelError: the model is in eval mode.
        QConfigError: no module has a qconfig; one whose observers do not round.
    """
    if not model.training:
        raise ModelError(
            "prepare_qat: the model is in eval mode, in which fuse_modules folds batch norm away "
            "and nothing is trained. Call model.train() first; or prepare, for post-training "
            "quantization."
        )
    root = _own(model, inplace)
    propagate_qconfig_(root)
    _check_qconfigs(root)
    chosen = QAT_MAPPING if mapping is None else mapping
    root = _swapped(root, "", chosen, {})
    add_observer_(root, None, set(chosen.values()))
    watch_first_pass(root)
    return root


def _own(model: nn.Module, inplace: bool) -> nn.Module:
    """The model or a copy, torch.ao's modules replaced by onnxq's."""
    root = own_module(model if inplace else copy.deepcopy(model))
    done: dict[nn.Module, nn.Module] = {}
    for module in list(root.modules()):
        for name, child in module.named_children():
            own = done.setdefault(child, own_module(child))
            if own is not child:
                setattr(module, name, own)
    return root


def _check_qconfigs(root: nn.Module) -> None:
    if not any(getattr(m, "qconfig", None) is not None for m in root.modules()):
        raise QConfigError(
            f"{type(root).__name__}: no module has a qconfig, so that nothing would be quantized. "
            "Set model.qconfig = onnxq.qconfig.get_default_qat_qconfig() (get_default_qconfig() "
            "for prepare), or the qconfig of those modules that are to be."
        )


def _swapped(
    module: nn.Module,
    name: str,
    mapping: Mapping[type[nn.Module], type[nn.Module]],
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module, or its counterpart; one that stands in two places has one counterpart."""
    if module in done:
        return done[module]
    kind = mapping.get(type_before_parametrizations(module))
    qconfig = getattr(module, "qconfig", None)
    if kind is not None and isinstance(qconfig, QConfig):
        _check_rounds(qconfig, name or type(module).__name__)
        made: nn.Module = kind.from_float(module)  # type: ignore[attr-defined]
        done[module] = carry_over(module, made)
        return made
    done[module] = module
    if not isinstance(module, _WHOLE):
        for short, child in module.named_children():
            inner = f"{name}.{short}" if name else short
            setattr(module, short, _swapped(child, inner, mapping, done))
    return module


def _check_rounds(qconfig: QConfig, name: str) -> None:
    activation = qconfig.activation
    rounds = isinstance(activation, FakeQuantSpec) or activation.name == "NoopObserver"
    if not rounds or not isinstance(qconfig.weight, FakeQuantSpec):
        raise QConfigError(
            f"prepare_qat: the qconfig of '{name}' has observers that do not round ({qconfig}); "
            "training wants a FakeQuantSpec for activations and weights. Use "
            "get_default_qat_qconfig(), or FakeQuantize.with_args(observer=...)."
        )


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
    others = tuple(non_leaf_module_list or ())
    custom = dict(custom_module_class_mapping or {})
    if device is None:
        device = next((p.device for p in module.parameters()), None)
    left: list[str] = []
    _observe(module, "", (computing, others, custom, device), left)
    if left:
        warnings.warn(
            f"{listed(left)}: no quantized form, so that they stay in float. Set their qconfig to "
            "None to say so; their input and output cross a DeQuantStub and a QuantStub.",
            UserWarning,
            stacklevel=3,
        )


def _observe(module: nn.Module, name: str, how: Any, left: list[str]) -> None:
    computing, others, custom, device = how
    kind = type_before_parametrizations(module)
    qconfig = getattr(module, "qconfig", None)
    static = isinstance(qconfig, QConfig)
    if static and (kind in computing or kind in others or isinstance(module, FloatFunctional)):
        attach_observer(module, device)
    elif static and _has_weights(module):
        left.append(f"{name or 'the model'} ({kind.__name__})")
        module.qconfig = None  # type: ignore[assignment]  # modules take any attribute
    if kind in others or isinstance(module, (*_WHOLE, FloatFunctional)):
        return
    for short, child in list(module.named_children()):
        inner = f"{name}.{short}" if name else short
        new = custom.get(type_before_parametrizations(child))
        if new is not None and isinstance(getattr(child, "qconfig", None), QConfig):
            observed = carry_over(child, new.from_float(child))
            setattr(module, short, observed)
            attach_observer(observed, device)
        elif not isinstance(child, FakeQuantize):
            _observe(child, inner, how, left)


def _has_weights(module: nn.Module) -> bool:
    """Parameters of its own, and nothing in it that could be quantized by itself."""
    own = next(module.parameters(recurse=False), None) is not None
    return own and (isinstance(module, nn.MultiheadAttention) or not list(module.children()))


def attach_observer(module: nn.Module, device: torch.device | str | None) -> None:
    """Lets the module's result go through a FakeQuantize of its qconfig's activation.

    Raises:
        UnsupportedError: it has one.
    """
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


def observe_output(module: nn.Module, args: object, result: Tensor) -> Tensor:  # noqa: ARG001
    """The hook: what a module returns goes through its activation_post_process."""
    processed: Tensor = module.activation_post_process(result)  # type: ignore[operator]
    return processed


def is_observer_hook(hook: object) -> bool:
    """Whether a forward hook is `observe_output`, and none of the user's."""
    return hook is observe_output


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """Wraps each leaf that has a qconfig in a QuantWrapper; in place, but for a leaf itself."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        setattr(module, name, add_quant_dequant(child))
    return module


def get_observer_dict(mod: nn.Module, target_dict: dict[str, nn.Module], prefix: str = "") -> None:
    """Collects the activation_post_process modules in `mod`, by their names.

    Args:
        mod: prepared.
        target_dict: grows by {name + ".activation_post_process": module}.
        prefix: of the names.
    """
    start = f"{prefix}." if prefix else ""
    found = getattr(mod, "activation_post_process", None)
    if isinstance(found, FakeQuantize):
        target_dict[f"{start}activation_post_process"] = found
    for name, child in mod.named_children():
        if not isinstance(child, FakeQuantize):
            get_observer_dict(child, target_dict, start + name)
