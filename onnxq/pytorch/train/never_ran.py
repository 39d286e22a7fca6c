"""Parts of a prepared module that no data reached: auxiliary heads, unused pools, other branches.

What never ran while the model was observed or trained is not part of what is deployed. It stays in
float, and a warning names it. Should an export reach it all the same, it is refused there: its
tensors have no scales.
"""

import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn

from onnxq.errors import CalibrationError
from onnxq.pytorch.modules.float_functional import FloatFunctional, NeverCalled
from onnxq.pytorch.modules.places import exchanged, move_hooks, remove_hooks
from onnxq.pytorch.nn.qat import QatModule
from onnxq.pytorch.nn.quantized.observed import observe_output
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.numerics.group import GroupMember

NOT_REACHED = "was reached by no data while the prepared model was observed or trained"


def leave_float(module: nn.Module, custom: Collection[type[nn.Module]]) -> None:
    """Puts float modules in the place of prepared ones that never ran, with one warning.

    A FloatFunctional that is not called is not named in it: blocks have one for a residual
    connection that not all of them make. It refuses to be called, exported or not. Where no data
    was seen at all, everything stays as it is.
    """
    fakes = [part for part in module.modules() if isinstance(part, FakeQuantize)]
    if not any(fake.has_observed for fake in fakes):
        return
    prepared = dict(_prepared(module, custom))
    unused = {name: part for name, part in prepared.items() if _never_ran(part)}
    kinds = {name: type(part).__name__ for name, part in module.named_modules()}
    made = {part: _float(name, part) for name, part in unused.items()}
    exchanged(module, made)
    tops = dict.fromkeys(_top(name, prepared, unused) for name in unused)
    named = [f"'{top}' ({kinds[top]})" for top in tops if kinds[top] != FloatFunctional.__name__]
    if named:
        warnings.warn(
            f"convert: no data reached {', '.join(named)} while the model was observed or trained: "
            "left in float, and not for export. If that is part of what is deployed, run the "
            "prepared model on data that reaches it, then convert it again.",
            stacklevel=4,
        )


def _prepared(
    module: nn.Module, custom: Collection[type[nn.Module]]
) -> Iterator[tuple[str, nn.Module]]:
    """(name, module) of what has FakeQuantizes of its own, or is one that stands alone."""
    taken: set[nn.Module] = set()
    for name, part in module.named_modules():
        own = _own(part)
        taken.update(own)
        if isinstance(part, GroupMember):
            taken.add(part.fake_quant)
        if type(part) in custom or part is module:
            continue
        if own or (isinstance(part, FakeQuantize) and part not in taken):
            yield name, part


def _own(part: nn.Module) -> list[FakeQuantize]:
    if isinstance(part, FakeQuantize):  # which is its own activation_post_process
        return []
    names = ("weight_fake_quant", "activation_post_process")
    found = [getattr(part, name, None) for name in names]
    return [fake for fake in found if isinstance(fake, FakeQuantize)]


def _never_ran(part: nn.Module) -> bool:
    fakes = [part] if isinstance(part, FakeQuantize) else _own(part)
    return not any(fake.has_observed or fake.ran_unobserved for fake in fakes)


def _top(name: str, prepared: Collection[str], unused: Collection[str]) -> str:
    """The outermost module around this one in which nothing ran."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        top = ".".join(parts[:length])
        if all(other in unused for other in prepared if f"{other}.".startswith(f"{top}.")):
            return top
    return name


def _float(name: str, part: nn.Module) -> nn.Module:
    """The float module that takes the place of a prepared one."""
    if isinstance(part, FloatFunctional):
        part.activation_post_process = NeverCalled(name)
        part.__dict__.pop("qconfig", None)
        return part
    made = part
    if isinstance(part, QatModule):
        trained: Any = part
        made = trained.to_float()
        move_hooks(part, made)
    elif isinstance(part, FakeQuantize):
        made = nn.Identity().train(part.training)
    else:
        del part.activation_post_process
    remove_hooks(made, lambda hook: hook is observe_output)
    for inner in made.modules():
        inner.__dict__.pop("qconfig", None)
    made.register_forward_pre_hook(_NotForExport(f"'{name}' ({type(made).__name__})"))
    return made


class _NotForExport:
    """The hook of a module that no data reached: it runs in float, and is not exported."""

    def __init__(self, title: str) -> None:
        self._title = title

    def __call__(self, module: nn.Module, args: object) -> None:  # noqa: ARG002  # a hook's
        if torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export():
            raise CalibrationError(
                f"{self._title} {NOT_REACHED}, so that its tensors have no scales. Run the "
                "prepared model on data that reaches it, then convert and export it again."
            )
