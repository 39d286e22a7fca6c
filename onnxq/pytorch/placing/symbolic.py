"""Symbolic tracing of a module for the arguments of an example call.

Each argument is a placeholder; tensors nested in one are taken out of it first:

    hidden_0 = hidden[0]
    hidden_1 = hidden[1]

so that the traced module is called as the module is. Constants in arguments are fixed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.arguments.bound_inputs import Slot
from onnxq.pytorch.arguments.nesting import attribute_access, children
from onnxq.pytorch.placing.made_tensors import traced_makers
from onnxq.pytorch.placing.traced_loops import NO_LENGTH, ExampleRun, hintless, parts

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


def symbolic(model: nn.Module, inputs: BoundInputs) -> fx.GraphModule:
    """The graph of a module's forward; arguments that the call leaves out keep their defaults.

    Raises:
        UnsupportedError: forward cannot be traced: it branches on the values of tensors.
        ModelError: forward loops over parts of a tensor, and fails on the inputs before that.
    """
    try:
        with traced_makers(), hintless():
            graph = _Tracer(inputs).trace(model)
    except (fx.proxy.TraceError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be traced: {' '.join(str(error).split())[:400]}\n"
            f"What to do: {_remedy(str(error))}, or mark the quantized region with QuantStub and "
            "DeQuantStub and call prepare_qat without inputs."
        ) from error
    traced = fx.GraphModule(model, graph, type(model).__name__)
    traced.graph.eliminate_dead_code()
    return traced


def _remedy(symptom: str) -> str:
    if "interpreted as an integer" in symptom:
        return (
            "loop over the parts (x.unbind(axis), x.split(n, axis)) in place of range() of a "
            "tensor's size, or take the number from the module"
        )
    if NO_LENGTH in symptom:
        return "use x.shape[0] in place of len(x), and len of list(x.split(n, axis)) for parts"
    return "use torch.where in place of a branch on values"


class _Tracer(fx.Tracer):
    """fx keeps the type with the graph, and makes one without inputs when a graph is unpickled."""

    def __init__(self, inputs: BoundInputs | None = None) -> None:
        super().__init__()
        self._inputs = inputs
        self._example: ExampleRun | None = None
        self._is_running = False

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The parts of a tuple, list or tensor: as many as for the example inputs."""
        if self._inputs is None:
            return super().iter(obj)
        self._example = self._example or ExampleRun(self.root, self.graph, self._inputs)
        self._is_running = True
        try:
            count = self._example.count(obj.node)
        finally:
            self._is_running = False
        known = self.create_proxy("call_function", parts, (obj, count), {})
        return (operator.getitem(known, i) for i in range(count))

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A node, or what the module computes where the graph is run."""
        if self._is_running:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        """A node, or the parameter itself where the graph is run."""
        if self._is_running:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

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
