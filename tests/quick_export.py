"""torch.onnx.export without what it does anew at every call and what depends on no module.

Of a small export's 0.9 CPU seconds, 0.55 go into reading the sources of torch's 500 translations,
and 0.06 into looking composite operators up by their names. A process has one answer to either,
which is kept here. The product does not need it: it seldom exports twice in a process.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch._export.utils as export_utils
from torch.onnx._internal.exporter._registration import ONNXRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

COMPOSITE = "CompositeImplicitAutograd"

make_registry: Callable[[int], ONNXRegistry] = ONNXRegistry.from_torchlib
"""The registry of an opset, made anew."""


@functools.cache
def _first_registry(opset_version: int, _libraries: frozenset[str]) -> ONNXRegistry:
    return make_registry(opset_version)


def _libraries() -> frozenset[str]:
    """Libraries of operators that are there by now: a registry lacks those that come later."""
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition("::")[0] for name in names)


def kept_registry(opset_version: int) -> ONNXRegistry:
    """A copy of the first registry of that opset: what an export adds goes into its own alone."""
    first, registry = _first_registry(opset_version, _libraries()), ONNXRegistry()
    registry._opset_version = opset_version
    registry.functions = {target: list(found) for target, found in first.functions.items()}
    return registry


def once_per_registration(look_up: Callable[[], None]) -> Callable[[], None]:
    """Looks composite operators up again only when others were registered."""
    last: list[object] = []

    def looked_up() -> None:
        registered = torch._C._dispatch_get_registrations_for_dispatch_key(COMPOSITE)
        if last != [registered]:
            look_up()
            last[:] = [registered]

    return looked_up


def install() -> None:
    """Puts the answers that are kept in place of torch's own."""
    registry: Any = ONNXRegistry
    registry.from_torchlib = staticmethod(kept_registry)  # called on an instance
    export_utils._materialize_cpp_cia_ops = once_per_registration(
        export_utils._materialize_cpp_cia_ops
    )
