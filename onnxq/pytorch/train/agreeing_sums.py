"""Scales of trained modules with which every machine adds integers alike.

Whether ARM, x86 without AVX2 or WebAssembly rounds one in 65,536 pairs of integers otherwise than
other machines depends on the last bits of the scales (onnxq.static.planning.plan_sums chooses those
of a plan). `convert` does the same with scales that were trained or observed, before it makes
modules of them, so that the converted module and the exported model have one scale.

Which tensors are added is found when a module is prepared: by annotation, or in its first forward
pass, and stored as names of FakeQuantizes, relative to the module that was prepared.
"""

import warnings
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from torch import fx, nn

from onnxq.errors import listed
from onnxq.observers.amax import AmaxObserver
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.qdq.sum_scales import Sum, raise_scales
from onnxq.qdq.tidy.sums import disagreeing_sums

_KEY = "onnxq_sums"
_ENDING = ".activation_post_process"
_OF_A_POWER = 0.5  # mantissa of a power of two, as frexp gives it
_OF_EXPORT = 4  # stacklevel of a warning that names the line with onnxq.export
_OF_CONVERT = 5  # likewise with convert, which calls `convert_in_place`


def keep_sums(prepared: nn.Module, sums: Iterable[Sum]) -> None:
    """Notes which tensors a prepared module adds, beside those that it is known to add."""
    _notes(prepared)[_KEY] = tuple(dict.fromkeys((*sums_in(prepared), *sums)))


def sums_in(module: nn.Module) -> tuple[Sum, ...]:
    """Sums that `keep_sums` noted of this very module."""
    return _notes(module).get(_KEY, ())


def _notes(module: nn.Module) -> dict[str, tuple[Sum, ...]]:
    # a copy of a GraphModule has its meta, and no other attributes
    return module.meta if isinstance(module, fx.GraphModule) else module.__dict__


def let_sums_agree(module: nn.Module) -> None:
    """Raises scales of results in a prepared module until its sums are the same on all machines."""
    sums, fakes = _found(module)
    if not sums:
        return
    before = {name: fake.qparams() for name, fake in fakes.items()}
    fixed = [one for one in sums if any(_is_asked_for(fakes[str(name)]) for name in one.outputs)]
    others = [one for one in sums if one not in fixed]
    tensors, left = raise_scales(others, {name: (name,) for name in fakes}, before)
    for name, fake in fakes.items():
        if tensors[name] is not before[name]:
            fake.fix(tensors[name])
    asked = [one.name for one in fixed if not one.agrees(tensors)]
    _warn(asked, "their scales were asked for as powers of two, and stay", _OF_CONVERT)
    _warn([one.name for one in left], "no scale near avoids it", _OF_CONVERT)


def _found(module: nn.Module) -> tuple[list[Sum], dict[str, FakeQuantize]]:
    """The sums in a module, with names from its root, and the FakeQuantizes of these by name."""
    sums: list[Sum] = []
    fakes: dict[str, FakeQuantize] = {}
    names = {part: name for name, part in module.named_modules()}
    for prefix, root in list(module.named_modules()):
        for one in sums_in(root):
            inputs, outputs = (_at(root, paths) for paths in (one.inputs, one.outputs))
            if len(inputs) < len(one.inputs) or len(outputs) < len(one.outputs):
                continue
            fakes |= {names[fake]: fake for fake in (*inputs, *outputs)}
            name = ".".join(filter(None, (prefix, one.name)))
            read, made = (tuple(names[fake] for fake in side) for side in (inputs, outputs))
            sums.append(replace(one, name=name, inputs=read, outputs=made))
    return sums, fakes


def _at(root: nn.Module, paths: Iterable[str | None]) -> list[FakeQuantize]:
    """The FakeQuantizes at those paths that have found one scale; others are left out."""
    found = []
    for path in paths:
        try:
            part = root.get_submodule(str(path))
        except AttributeError:  # the user has moved it
            continue
        if isinstance(part, FakeQuantize) and part.has_observed and not part.is_per_channel:
            found.append(part)
    return found


def _is_asked_for(fake: FakeQuantize) -> bool:
    """Whether its scale is a power of two, and not by accident."""
    mantissa, _ = np.frexp(float(fake.qparams().scale))
    observer = fake.observer
    given = isinstance(observer, AmaxObserver) and observer.fixed is not None
    is_users = fake.own is not None or not type(observer).__module__.startswith("onnxq.")
    return bool(mantissa == _OF_A_POWER) and (given or is_users)


def warn_of_sums(module: nn.Module, model: ir.Model) -> None:
    """Names sums in an exported model that `convert` did not know of."""
    known: set[float] = set()
    for root in module.modules():
        if isinstance(root, fx.GraphModule) and _KEY in root.meta:
            return  # annotation knows all of them, and for which target
        known.update(_result_scale(root, one) for one in sums_in(root))
    unknown = [name for name, scale in disagreeing_sums(model).items() if scale not in known]
    reason = "convert raises scales of what prepare or prepare_qat returned, as a whole"
    _warn(unknown, reason, _OF_EXPORT)


def _result_scale(root: nn.Module, one: Sum) -> float:
    """Scale of a sum in a converted module; NaN where it is not found."""
    path = str(one.outputs[0])
    parts = dict(root.named_modules(remove_duplicate=False))
    part = parts.get(path) or parts.get(owner(path))
    return float(getattr(part, "scale", np.nan))


def _warn(names: list[str], reason: str, caller: int) -> None:
    if names:
        warnings.warn(
            f"{listed(names)}: ARM, x86 without AVX2 or WebAssembly may round some of these sums "
            f"of integers to the next integer: {reason}. onnxq.predict names the pairs of "
            "integers.",
            stacklevel=caller,
        )


def owner(path: str) -> str:
    """The module whose result a FakeQuantize of that path rounds."""
    return path.removesuffix(_ENDING)
