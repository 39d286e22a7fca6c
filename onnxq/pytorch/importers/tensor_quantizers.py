"""Modules with the TensorQuantizers of pytorch_quantization (or a package that descends from it).

    model -> a copy, with onnxq's TensorQuantizer in the place of each   -> onnxq.pytorch.export

A quantizer is known by its documented attributes, num_bits, axis, amax, unsigned, fake_quant, not
by its class: the package that made it need not be there. The modules around it (QuantConv2d,
QuantLinear, ...) stay: their forward calls input_quantizer and weight_quantizer, and is traced as
it is. Values are those of the original but at ties, which ONNX decides by a division.
"""

import copy
from typing import Any

import torch
from torch import nn

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch.importers.notes import note
from onnxq.pytorch.tensor_quant import QuantDescriptor, TensorQuantizer
from onnxq.pytorch.tensor_quant.descriptor import QuantTypeError, QuantValueError

DOCUMENTED = ("num_bits", "axis", "amax", "unsigned", "fake_quant")
_WITHOUT_FORM = {  # attributes of descendants that change what is computed
    "block_sizes": "scales for blocks of values",
    "pre_quant_scale": "a scale ahead of quantization",
    "rotate": "a rotation ahead of quantization",
    "bias": "an offset ahead of quantization",
}


def is_tensor_quantizer(module: nn.Module) -> bool:
    """Whether it has the documented attributes of a TensorQuantizer, and is not onnxq's own."""
    if isinstance(module, TensorQuantizer):
        return False
    return all(hasattr(module, name) for name in DOCUMENTED)


def has_tensor_quantizers(model: nn.Module) -> bool:
    """Whether the model is one for this importer: with quantizers of any package, also onnxq's."""
    return any(
        isinstance(module, TensorQuantizer) or is_tensor_quantizer(module)
        for module in model.modules()
    )


def with_own_quantizers(model: nn.Module) -> nn.Module:
    """A copy of the model in eval mode whose quantizers are onnxq's, with the same amax."""
    if not has_tensor_quantizers(model):
        raise ModelError(
            f"{type(model).__name__} has no module with the attributes of a TensorQuantizer "
            f"({', '.join(DOCUMENTED)}); export it as it is, or use another importer."
        )
    made = copy.deepcopy(model).eval()
    own: dict[nn.Module, TensorQuantizer] = {}
    # every place, not every module: two parents may share a quantizer
    for path, parent in list(made.named_modules()):
        for name, child in list(parent._modules.items()):  # children are named once
            if child is None or not is_tensor_quantizer(child):
                continue
            where = f"{path}.{name}" if path else name
            if child not in own:
                own[child] = _own(child, where)
            setattr(parent, name, own[child])
    if is_tensor_quantizer(made):
        return _own(made, "the model")
    return made


def _own(module: Any, where: str) -> TensorQuantizer:
    """The quantizer of onnxq that computes what this one does."""
    if getattr(module, "_disabled", False) or not getattr(module, "_if_quant", True):
        return TensorQuantizer(disabled=True)
    for attribute, meaning in _WITHOUT_FORM.items():
        value = getattr(module, attribute, None)
        if value is not None and value is not False:
            raise UnsupportedError(
                f"quantizer '{where}': {attribute} is set ({meaning}), which QuantizeLinear has "
                "not. Disable the quantizer, or quantize without it."
            )
    if getattr(module, "_if_calib", False):
        note(f"quantizer '{where}' was still calibrating; its amax is taken as it is.")
    learned = bool(getattr(module, "_learn_amax", False))
    amax = None if learned else module.amax
    if amax is None and not learned:
        raise UnsupportedError(
            f"quantizer '{where}' has no amax: each tensor gives its own range at run time. "
            "Calibrate the model and call load_calib_amax(), or disable the quantizer."
        )
    try:
        own = TensorQuantizer(_descriptor(module, learned))
    except (QuantTypeError, QuantValueError) as error:
        raise UnsupportedError(f"quantizer '{where}': {error}") from error
    if not learned:
        own.amax = torch.as_tensor(amax).detach()
        return own.eval()
    with torch.no_grad():
        own.clip.clip_value_min.copy_(module.clip.clip_value_min)
        own.clip.clip_value_max.copy_(module.clip.clip_value_max)
    if not getattr(module, "_if_clip", True):
        own.disable_clip()
    return own.eval()


def _descriptor(module: Any, learned: bool) -> QuantDescriptor:
    axis = module.axis
    return QuantDescriptor(
        module.num_bits,
        axis=None if learned else tuple(axis) if isinstance(axis, list | tuple) else axis,
        unsigned=bool(module.unsigned),
        fake_quant=bool(module.fake_quant),
        narrow_range=bool(getattr(module, "narrow_range", getattr(module, "_narrow_range", False))),
        scale_amax=getattr(module, "_scale_amax", None),
        learn_amax=learned,
    )
