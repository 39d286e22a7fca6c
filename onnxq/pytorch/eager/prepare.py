"""Prepares a module with stubs: observers for calibration, or fake-quantize modules for training.

    float module --prepare-------> observed module --data--> convert
    float module --prepare_qat---> fake-quantized module --training--> convert

Each module that computes new values gets one FakeQuantize for its result, `activation_post_process`
(of an observer alone it only observes). Modules that move values (MaxPool, Flatten, ReLU, Dropout)
get none: their result has the qparams of their input. Averages get one, unlike in torch, which
rounds them for the first time when the model is deployed.
"""

import copy
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.utils._pytree import tree_leaves

from onnxq.errors import ModelError, QConfigError, listed
from onnxq.pytorch.arguments.bound_inputs import HALVES, Inputs
from onnxq.pytorch.eager.add_observer import UNFOLDED, WHOLE, add_observer_
from onnxq.pytorch.eager.propagation import (
    OBSERVED_CLASSES,
    PREPARING,
    entries_of,
    propagate_qconfig_,
)
from onnxq.pytorch.insertion.graph_prepare import prepare_graph, prepare_graph_qat
from onnxq.pytorch.modules.adapter import Model, as_module, check_traceable, in_float32
from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.places import carry_over, exchanged, places
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.modules.torch_qconfig import FOREIGN
from onnxq.pytorch.nn import quantizable
from onnxq.pytorch.nn.intrinsic import FUSED
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear
from onnxq.pytorch.nn.quantizable.activation import why_whole
from onnxq.pytorch.programs.graph_module import TAKES_HALVES
from onnxq.pytorch.train.conversion import QAT_MAPPING
from onnxq.pytorch.train.sources import watch_first_pass
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigDynamic, QConfigMapping
from onnxq.targets import Target

# --- Parts of torch.ao that existing code holds, as onnxq's: stubs and fused float modules.
#
# Told by their module and class names, so that torch.ao need not be there.

_MODULES: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (QuantStub, DeQuantStub, FloatFunctional, *FUSED)
}


def own_module(mod: nn.Module) -> nn.Module:
    """The module of onnxq for torch.ao's stub, FloatFunctional or fused module; else itself."""
    kind = type(mod)
    own = _MODULES.get(kind.__name__)
    if own is None or not kind.__module__.startswith(FOREIGN) or hasattr(mod, "weight_fake_quant"):
        return mod
    made = own(*mod.children()) if own in FUSED else own()
    return carry_over(mod, made)


@torch.inference_mode(False)  # of its buffers, which training writes, none is for inference alone
def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Collection[type[nn.Module]] | None = None,
    observer_non_leaf_module_list: Collection[type[nn.Module]] | None = None,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
    *,
    inputs: Inputs | None = None,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> nn.Module:
    """The model with observers; run data through it, then `convert` it.

    Args:
        model: in eval mode, with `qconfig` on it or on modules in it; QuantStub and DeQuantStub
            mark where its quantized part begins and ends. Batch norm is folded by `fuse_modules`.
        inplace: changes the model itself.
        allow_list: types that are observed; None: COMPUTING.
        observer_non_leaf_module_list: types with modules in them whose result is observed.
        prepare_custom_config_dict: {"float_to_observed_custom_module_class": {type: type with
            from_float}}, and what propagate_qconfig_ reads.
        inputs: example inputs, for a model without stubs and qconfigs: what is observed is what
            onnxq.prepare quantizes in the exported model (see pytorch/insertion/graph_prepare.py).
            The arguments above stay as they are then.
        qconfig: with `inputs`; names nodes and tensors of the exported model. None: the default.
        target: with `inputs`; as for onnxq.prepare.
    Raises:
        QConfigError: no module has a qconfig; one that is no QConfig; a key of
            prepare_custom_config_dict that is not known.
        ModelError: the model is in train mode (with `inputs` it may be); batch norm that was
            fused in train mode.
    """
    given = (inplace, allow_list, observer_non_leaf_module_list, prepare_custom_config_dict)
    if _without_stubs(inputs, qconfig, target, given):
        return prepare_graph(_traceable(model, "prepare"), in_float32(inputs), qconfig, target)
    if model.training:
        raise ModelError(
            "prepare: the model is in train mode, in which dropout and batch norm change what is "
            "observed. Call model.eval() first; or prepare_qat, to train it."
        )
    return observed(
        model, inplace, allow_list, observer_non_leaf_module_list, prepare_custom_config_dict
    )


def observed(
    model: nn.Module,
    inplace: bool,
    allow_list: Collection[type[nn.Module]] | None,
    observer_non_leaf_module_list: Collection[type[nn.Module]] | None,
    prepare_custom_config_dict: Mapping[str, Any] | None,
) -> nn.Module:
    """The model with observers where its qconfigs ask for them, in whatever mode it is."""
    root = _own(model, inplace)
    custom = entries_of(prepare_custom_config_dict, "prepare_custom_config_dict", PREPARING)
    propagate_qconfig_(root, None, custom)
    _check_qconfigs(root)
    if nn.MultiheadAttention not in custom.get(OBSERVED_CLASSES, {}):
        root = _with_quantizable_attention(root)
    unfolded = [n or type(m).__name__ for n, m in root.named_modules() if isinstance(m, UNFOLDED)]
    if unfolded:
        raise ModelError(
            f"prepare: {listed(unfolded)} hold batch norm that was fused in train mode. Call "
            "model.eval() before fuse_modules, which then folds it into the weights; or train "
            "with prepare_qat."
        )
    classes = custom.get(OBSERVED_CLASSES)
    add_observer_(root, allow_list, observer_non_leaf_module_list, None, classes)
    watch_first_pass(root)
    return root


@torch.inference_mode(False)
def prepare_qat(
    model: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
    *,
    inputs: Inputs | None = None,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> nn.Module:
    """The model with fake-quantized weights and activations; train it, then `convert` it.

    Args:
        model: in train mode, with `qconfig` on it or on modules in it, and stubs where its
            quantized part begins and ends. Layers with batch norm are fused by `fuse_modules`.
        mapping: {float type: type with from_float}; None: QAT_MAPPING.
        inplace: changes the model itself.
        inputs: example inputs, for a model without stubs, qconfigs and fused layers: it is traced
            and quantized where onnxq.prepare quantizes the exported model (see
            onnxq.pytorch.insertion.graph_prepare). The arguments above stay as they are then.
        qconfig: with `inputs`; names nodes and tensors of the exported model. None: the default.
            Its `improve` names PTQ algorithms of weights, made from `inputs`: training starts from
            them (see onnxq.pytorch.insertion.improved_start).
        target: with `inputs`; as for onnxq.prepare: decides which integers weights may use.
    Raises:
        ModelError: the model is in eval mode (with `inputs` it may be).
        UnsupportedError: with `inputs`, a model that cannot be traced or exported.
        QConfigError: no module has a qconfig; one whose observers do not round; PTQ algorithms that
            are not of weights.
    """
    if _without_stubs(inputs, qconfig, target, (mapping, inplace)):
        plain, given = _traceable(model, "prepare_qat"), in_float32(inputs)
        prepared = prepare_graph_qat(plain, given, qconfig, target)
        leaves = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
        prepared.meta[TAKES_HALVES] = any(x.dtype in HALVES for x in leaves)
        return prepared
    if not model.training:
        raise ModelError(
            "prepare_qat: the model is in eval mode, in which fuse_modules folds batch norm away "
            "and nothing is trained. Call model.train() first; or prepare, for post-training "
            "quantization."
        )
    root = _own(model, inplace)
    propagate_qconfig_(root)
    _check_qconfigs(root)
    if mapping is None or nn.MultiheadAttention not in mapping:
        root = _with_quantizable_attention(root)
    chosen = QAT_MAPPING if mapping is None else mapping
    root = _swapped(root, "", chosen, {})
    add_observer_(root, None, set(chosen.values()))
    watch_first_pass(root)
    return root


def _without_stubs(
    inputs: Inputs | None,
    qconfig: QConfigMapping | None,
    target: str | Target | None,
    others: tuple[object, ...],
) -> TypeGuard[Inputs]:
    """Whether quantizers are inserted into a traced graph."""
    if inputs is None and (qconfig is not None or target is not None):
        raise QConfigError(
            "qconfig and target go with inputs: prepare_qat(model, inputs=example, qconfig=...). A "
            "model with stubs has its qconfig as attribute: model.qconfig = ..."
        )
    if inputs is not None and any(other not in (None, False) for other in others):
        raise QConfigError(
            "with inputs the model is traced into a new one; inplace, mapping and the lists of "
            "modules are for models with stubs. Leave them out."
        )
    return inputs is not None


def _traceable(model: Model, wanted_by: str) -> nn.Module:
    """The plain module, in float32, of any form that `onnxq.export` takes but scripts."""
    module = as_module(model)
    check_traceable(module, wanted_by)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    lazy = [name for name, tensor in tensors if is_lazy(tensor)]
    if lazy:
        raise ModelError(f"{wanted_by}: {listed(lazy)} have no shape yet. Run the model once.")
    frozen = [name for name, tensor in tensors if tensor.is_inference()]
    if frozen:
        raise ModelError(
            f"{wanted_by}: {listed(frozen)} were made under torch.inference_mode, which neither "
            "training nor tracing may change. Make or load the model outside of it."
        )
    return module


def _own(model: nn.Module, inplace: bool) -> nn.Module:
    """The model or a copy, torch.ao's modules replaced by onnxq's."""
    root = model if inplace else copy.deepcopy(model)
    return exchanged(root, {module: own_module(module) for module in root.modules()})


def _with_quantizable_attention(root: nn.Module) -> nn.Module:
    """The model with nn.MultiheadAttention that has a qconfig made of layers that have one each."""
    done: dict[nn.Module, nn.Module] = {}
    for module in list(root.modules()):
        wanted = isinstance(getattr(module, "qconfig", None), QConfig)
        if isinstance(module, nn.MultiheadAttention) and wanted and not why_whole(module):
            done[module] = carry_over(module, quantizable.MultiheadAttention.from_float(module))
            propagate_qconfig_(done[module])
    return exchanged(root, done)


def _check_qconfigs(root: nn.Module) -> None:
    if not any(getattr(m, "qconfig", None) is not None for m in root.modules()):
        raise QConfigError(
            f"{type(root).__name__}: no module has a qconfig, so that nothing would be quantized. "
            "Give example inputs, inputs=example: quantizers need no stubs then. Or set "
            "model.qconfig = onnxq.qconfig.get_default_qat_qconfig() (get_default_qconfig() for "
            "prepare), and mark with QuantStub and DeQuantStub where integers begin and end."
        )


def _swapped(
    module: nn.Module,
    name: str,
    mapping: Mapping[type[nn.Module], type[nn.Module]],
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module, or the one that replaces it; a module in two places is replaced by one."""
    if module in done:
        return done[module]
    kind = mapping.get(type_before_parametrizations(module))
    qconfig = getattr(module, "qconfig", None)
    if kind is not None and isinstance(qconfig, QConfig):
        _check_rounds(qconfig, name or type(module).__name__)
        made: nn.Module = kind.from_float(module)  # type: ignore[attr-defined]  # of each class in the mapping
        done[module] = carry_over(module, made)
        return made
    if type_before_parametrizations(module) is nn.Linear and _is_groupwise(qconfig):
        done[module] = carry_over(module, GroupwiseLinear.from_float(module))
        return done[module]
    done[module] = module
    if not isinstance(module, WHOLE):
        for short, child in places(module):
            inner = f"{name}.{short}" if name else short
            setattr(module, short, _swapped(child, inner, mapping, done))
    return module


def _is_groupwise(qconfig: object) -> bool:
    """Whether a module's weight alone is trained, in blocks."""
    if not isinstance(qconfig, QConfigDynamic) or qconfig.block_size is None:
        return False
    return isinstance(qconfig.weight, FakeQuantSpec)


def _check_rounds(qconfig: QConfig, name: str) -> None:
    activation = qconfig.activation
    rounds = isinstance(activation, FakeQuantSpec) or activation.name == "NoopObserver"
    if not rounds or not isinstance(qconfig.weight, FakeQuantSpec):
        raise QConfigError(
            f"prepare_qat: the qconfig of '{name}' has observers that do not round ({qconfig}); "
            "training wants a FakeQuantSpec for activations and weights. Use "
            "get_default_qat_qconfig(), or FakeQuantize.with_args(observer=...)."
        )
