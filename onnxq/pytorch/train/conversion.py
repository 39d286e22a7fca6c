"""Conversion: quantized modules in the place of prepared ones.

    prepared module --check_prepared, convert_in_place--> quantized module

`onnxq.export` converts what is not converted yet; `onnxq.pytorch.convert` has the documented
arguments beside.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError, OnnxqError, UnsupportedError, listed
from onnxq.pytorch.modules.places import move_hooks, places, remove_hooks
from onnxq.pytorch.modules.stubs import DeQuantStub
from onnxq.pytorch.nn import qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import BATCH_NORMS
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.nn.qat import QatModule
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear as TrainedInBlocks
from onnxq.pytorch.nn.quantized import DeQuantize, dynamic
from onnxq.pytorch.nn.quantized.dynamic.linear import GroupwiseLinear
from onnxq.pytorch.nn.quantized.observed import output_fake_quantize
from onnxq.pytorch.numerics.all_observers import check_observed_values
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.numerics.ranks import check_not_sharded
from onnxq.pytorch.train import parametrizations
from onnxq.pytorch.train.agreeing_sums import let_sums_agree
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.pytorch.train.never_ran import leave_float
from onnxq.pytorch.train.same_scale import keep_rounding
from onnxq.pytorch.train.sources import is_watching
from onnxq.qconfig import QConfig, QConfigDynamic

# --- Module types and what takes their place, computed from the `float_type` of each mapped module.
#
# float_type ------------> trained type -------------------------> quantized type
# intrinsic.ConvBnReLU2d   intrinsic.qat.ConvBnReLU2d               intrinsic.quantized.ConvReLU2d

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from torch import Tensor

    Types = Mapping[type[nn.Module], type[nn.Module]]


def _by_float_type(*modules: ModuleType) -> dict[type[nn.Module], Any]:
    """{float type: what stands for it} of the public classes of these modules."""
    kinds = [getattr(module, name) for module in modules for name in module.__all__]
    return {kind.float_type: kind for kind in kinds if hasattr(kind, "float_type")}


_QUANTIZED = _by_float_type(nnq, nniq)

QAT_MAPPING: Types = _by_float_type(qat, fused)
"""Trained types, which prepare_qat puts in the place of float modules with a qconfig."""

STATIC_MAPPING: Types = {
    **_QUANTIZED,
    **{kind: _QUANTIZED[kind.deployed_type()] for kind in _by_float_type(qat, fused).values()},
}
"""Quantized types for modules whose activations have been observed or trained."""

DYNAMIC_MAPPING: Types = {**_by_float_type(dynamic), TrainedInBlocks: GroupwiseLinear}
"""Quantized types for modules whose qconfig is a QConfigDynamic: nothing needs to be observed."""


# --- Parameters that training has driven out of float32's numbers, asked for before integers are
# made.
#
# Integers cannot say NaN: NaN quantized is some integer, and the converted module gives numbers
# where the trained one gave none. Observers see it while they watch; parameters may diverge after
# that, and those of layers that stay in float are watched by none.

STATISTICS = ("running_mean", "running_var")


def check_parameters(module: nn.Module) -> None:
    """Passes a module whose parameters and statistics are numbers.

    An infinite buffer, or one that is not trained, may be a mask; running statistics may not.
    """
    found = [f"'{name}' ({int((~x).sum())} of {x.numel()} elements)" for name, x in _wrong(module)]
    if found:
        others = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise ModelError(
            f"{type(module).__name__}: {found[0]}{others} holds NaN or infinite values, of which "
            "integers cannot be made. Training has diverged: go back to a checkpoint from before, "
            "and lower the learning rate or clip gradients."
        )


def _wrong(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and mask of the elements that are numbers, of each tensor where some are not."""
    observers = {id(x) for p in module.modules() if isinstance(p, Observing) for x in p.buffers()}
    for name, x in (*module.named_parameters(), *module.named_buffers()):
        if id(x) in observers or x.is_meta or not x.is_floating_point():
            continue
        may_be_infinite = not x.requires_grad and not name.endswith(STATISTICS)
        is_number = ~x.detach().isnan() if may_be_infinite else x.detach().isfinite()
        if not bool(is_number.all()):
            yield name, is_number


# Modules with parameters that compute in float between two quantizers, as they were trained.
_FLOAT_BETWEEN_INTEGERS = (nn.PReLU,)


@dataclass(frozen=True, slots=True)
class ModuleMappings:
    """Quantized types by module type.

    Attributes:
        static: {type: quantized type with from_float}.
        dynamic: the same for modules whose qconfig is a QConfigDynamic; empty: `static` holds for
            these, too.
        custom: {observed type: quantized type with from_observed}.
        leaves_float: whether layers with weights and a qconfig stay where no quantized type is
            mapped to theirs; else they are refused.
    """

    static: Types
    dynamic: Types = field(default_factory=dict)
    custom: Mapping[type[nn.Module], Any] = field(default_factory=dict)
    leaves_float: bool = False

    def of(self, module: nn.Module) -> type[nn.Module] | None:
        """The quantized type with from_float for a module; None: it stays."""
        is_dynamic = isinstance(getattr(module, "qconfig", None), QConfigDynamic)
        mapping = self.dynamic if is_dynamic and self.dynamic else self.static
        kind = type_before_parametrizations(module)
        # of a user's own there may be subclasses
        return mapping.get(FakeQuantize if isinstance(module, FakeQuantize) else kind)


DEFAULT_MAPPINGS = ModuleMappings(STATIC_MAPPING, DYNAMIC_MAPPING)


def check_prepared(module: nn.Module, mappings: ModuleMappings = DEFAULT_MAPPINGS) -> None:
    """Passes a module in which something was prepared; warns where nothing of it is quantized."""
    if not mappings.leaves_float:
        _refuse_unsupported(module, mappings)
    if any(_is_convertible(part, mappings) for part in module.modules()):
        return
    if any(_annotations(part) is not None for part in module.modules()):
        warnings.warn(
            f"convert: nothing in {type(module).__name__} is quantized, so that it stays in float. "
            "print(onnxq.pytorch.annotate(model, inputs, qconfig)) says why.",
            stacklevel=3,
        )
        return
    raise ModelError(
        f"convert: nothing in {type(module).__name__} is prepared: it has no FakeQuantize, and no "
        "module with a qconfig that has a quantized form; it would come back in float, as it is. "
        "Convert what prepare(model) or prepare_qat(model) returned, after it has seen data (with "
        "inputs=example they need no stubs and qconfigs). For dynamic quantization call "
        "quantize_dynamic(model), or propagate_qconfig_ with a QConfigDynamic before convert."
    )


def convert_in_place(module: nn.Module, mappings: ModuleMappings = DEFAULT_MAPPINGS) -> nn.Module:
    """The module with quantized modules in place of those that were observed or trained."""
    check_not_sharded(module, "convert")
    check_observed_values(module)
    check_parameters(module)
    leave_float(module, mappings.custom)
    let_sums_agree(module)
    parametrizations.materialize_weights(module)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    result = _converted(module, mappings, "", {})
    parametrizations.remove_parametrizations(result)
    parametrizations.keep_parameters(result, parameters)
    _forget_folded(result)
    for part in result.modules():
        remove_hooks(part, is_watching)
    return result


def _forget_folded(module: nn.Module) -> None:
    """Removes norms that no graph calls any more: layers hold their numbers by now."""
    for part in list(module.modules()):
        if not isinstance(part, fx.GraphModule) or _annotations(part) is None:
            continue
        read = {str(n.target) for n in part.graph.nodes if n.op in ("call_module", "get_attr")}
        for name, inner in list(part.named_modules(remove_duplicate=False)):
            paths = [sorted((f"{name}.", f"{one}."), key=len) for one in read]
            is_read = any(longer.startswith(shorter) for shorter, longer in paths)  # or a part
            if isinstance(inner, BATCH_NORMS) and not is_read:
                part.delete_submodule(name)


def swapped(mod: nn.Module, mappings: ModuleMappings) -> nn.Module:
    """The module's quantized module, if it has one and was prepared; else the module."""
    own = mappings.custom.get(type_before_parametrizations(mod))
    if own is not None:
        return _with_hooks(mod, own.from_observed(mod))
    kind = mappings.of(mod)
    if kind is None or not _is_prepared(mod):
        return mod
    if getattr(kind, "keeps_qparams", False) and output_fake_quantize(mod) is not None:
        return mod  # it was trained with qparams of its own, those of its FakeQuantize
    return _with_hooks(mod, kind.from_float(mod))  # type: ignore[attr-defined]  # of each class in the mapping


def _with_hooks(mod: nn.Module, made: nn.Module) -> nn.Module:
    """The new module, with the mode and the user's hooks of the old."""
    made.train(mod.training)
    move_hooks(mod, made)
    remove_hooks(made, _is_own_hook)
    keep_rounding(mod, made)
    return made


def _is_own_hook(hook: object) -> bool:
    """Whether onnxq registered it, to observe the output."""
    where = getattr(hook, "__module__", None) or type(hook).__module__
    return where.startswith("onnxq.pytorch.")


def _is_prepared(mod: nn.Module) -> bool:
    """Whether the module has something to say of how it is quantized."""
    if isinstance(mod, FakeQuantize | QatModule | DeQuantStub):
        return True
    return output_fake_quantize(mod) is not None or isinstance(
        getattr(mod, "qconfig", None), QConfig | QConfigDynamic
    )


def _converted(
    module: nn.Module, mappings: ModuleMappings, path: str, done: dict[nn.Module, nn.Module]
) -> nn.Module:
    """The module, or what takes its place; one that stands in two places is converted once."""
    if module in done:
        return done[module]
    try:
        result = swapped(module, mappings)
    except OnnxqError as error:
        is_dynamic = isinstance(getattr(module, "qconfig", None), QConfigDynamic)
        if not path or not is_dynamic or not isinstance(error, UnsupportedError):
            raise type(error)(f"'{path or type(module).__name__}': {error}") from error
        warnings.warn(f"'{path}' stays in float: {error}", stacklevel=2)
        result = module
    done[module] = result
    if result is module and not isinstance(module, QatModule | FakeQuantize):
        for name, child in places(module):
            inner = f"{path}.{name}" if path else name
            setattr(module, name, _converted(child, mappings, inner, done))
        module.__dict__.pop("input_fake_quant", None)
    return result


def _annotations(part: nn.Module) -> object:
    return part.meta.get(ANNOTATIONS) if isinstance(part, fx.GraphModule) else None


def _is_convertible(part: nn.Module, mappings: ModuleMappings) -> bool:
    """Whether it was prepared, is to be dynamic, or is quantized already."""
    kind = type_before_parametrizations(part)
    quantized = {*STATIC_MAPPING.values(), *DYNAMIC_MAPPING.values(), *mappings.static.values()}
    if isinstance(part, FakeQuantize | QatModule) or kind in mappings.custom:
        return True
    if kind in quantized - {DeQuantize}:  # a float module has DeQuantStubs, too
        return True
    qconfig = getattr(part, "qconfig", None)
    if isinstance(qconfig, QConfigDynamic) and kind in DYNAMIC_MAPPING:
        return True
    return isinstance(qconfig, QConfig | QConfigDynamic) and kind in mappings.static


def _refuse_unsupported(module: nn.Module, mappings: ModuleMappings) -> None:
    """Refuses leaves that have weights and a qconfig, and no quantized form."""
    found = [
        f"{name or type(part).__name__} ({type(part).__name__})"
        for name, part in module.named_modules()
        if _is_unsupported(part, {**mappings.static, **mappings.custom})
    ]
    if found:
        raise UnsupportedError(
            f"convert: no quantized form of {listed(found)}, which have weights and a qconfig. Set "
            "their qconfig to None before prepare, between a DeQuantStub and a QuantStub, to leave "
            "them in float; or give a mapping for their types."
        )


def _is_unsupported(part: nn.Module, known: Types) -> bool:
    if type_before_parametrizations(part) in known or isinstance(part, FakeQuantize):
        return False
    if not isinstance(getattr(part, "qconfig", None), QConfig):
        return False
    inner = [child for child in part.children() if not isinstance(child, FakeQuantize)]
    weights = list(part.parameters(recurse=False))
    return not inner and bool(weights) and not isinstance(part, _FLOAT_BETWEEN_INTEGERS)
