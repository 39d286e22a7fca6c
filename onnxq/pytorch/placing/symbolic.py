"""Symbolic tracing of a module for the arguments of an example call.

Each argument is a placeholder; tensors nested in one are taken out of it first:

    hidden_0 = hidden[0]
    hidden_1 = hidden[1]

so that the traced module is called as the module is. Constants in arguments are fixed.
"""

from __future__ import annotations

import operator
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.arguments.inputs import Slot
from onnxq.pytorch.arguments.nesting import attribute_access, children
from onnxq.pytorch.placing.made_tensors import traced_makers

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.inputs import BoundInputs


def symbolic(model: nn.Module, inputs: BoundInputs) -> fx.GraphModule:
    """The graph of a module's forward; arguments that the call leaves out keep their defaults.

    Raises:
        UnsupportedError: forward cannot be traced: it branches on the values of tensors.
    """
    try:
        with traced_makers():
            graph = _Tracer(inputs).trace(model)
    except (fx.proxy.TraceError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be traced: {' '.join(str(error).split())[:400]}\n"
            "What to do: use torch.where in place of a branch on values, or mark the quantized "
            "region with QuantStub and DeQuantStub and call prepare_qat without inputs."
        ) from error
    traced = fx.GraphModule(model, graph, type(model).__name__)
    traced.graph.eliminate_dead_code()
    return traced


class _Tracer(fx.Tracer):
    """fx keeps the type with the graph, and makes one without inputs when a graph is unpickled."""

    def __init__(self, inputs: BoundInputs | None = None) -> None:
        super().__init__()
        self._inputs = inputs

    def create_args_for_root(
        self,
        root_fn: Any,
        is_module: bool,
        concrete_args: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Placeholders for the arguments, and a call of forward on what is in them."""
        if self._inputs is None:
            return super().create_args_for_root(root_fn, is_module, concrete_args)
        call = self._inputs.call
        placeholders = {
            name: self.create_proxy("placeholder", name, (), {}) for name in call.arguments
        }
        tensors: dict[str, object] = {}
        for name, argument in call.arguments.items():
            self._take_out(placeholders[name], argument, tensors)
        args, kwargs = call.filled(tensors)

        def forward(root: nn.Module) -> object:
            return root_fn(root, *args, **kwargs)

        del forward.__annotations__["return"]  # fx writes it into the code that it generates
        return forward, [self.root]

    def _take_out(self, proxy: fx.Proxy, template: object, tensors: dict[str, object]) -> None:
        if isinstance(template, Slot):
            tensors[template.name] = proxy
        parts = children(template) or ()
        for position, (key, part) in enumerate(parts):
            if not _holds_tensor(part):
                continue
            by_attribute = attribute_access(template) and isinstance(key, str)
            take = getattr if by_attribute else operator.getitem
            index = key if by_attribute or isinstance(template, MutableMapping) else position
            name = part.name if isinstance(part, Slot) else None
            inner = self.create_proxy("call_function", take, (proxy, index), {}, name=name)
            self._take_out(inner, part, tensors)


def _holds_tensor(template: object) -> bool:
    if isinstance(template, Slot):
        return True
    return any(_holds_tensor(part) for _, part in children(template) or ())
