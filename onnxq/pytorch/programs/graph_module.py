"""A GraphModule that keeps all of a model: its tree of modules, and what its graph does not name.

torch.fx's own copies what the graph names and makes the rest anew, so that types of containers,
parameters that forward does not read, and buffers that are not saved are lost.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator, OpOverload

from onnxq.pytorch.modules.adapter import in_float32
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm, frozen_norm

TAKES_HALVES = "takes_halves"
"""Key of a training graph's meta: whether its example inputs were in half precision."""
FLOAT_STATE = "float_state"
"""Key of a training graph's meta: names in the state_dict of the float model."""

_HELD = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_KEPT_META = ("program_nodes",)


class TrainingGraph(fx.GraphModule):
    """The graph of a model's forward, on the modules, parameters and buffers of the model.

    It is saved and copied like any module; names of nodes stay. A checkpoint of the float model can
    be loaded: it leaves the state of quantizers as it is.
    """

    def __init__(
        self, root: nn.Module | dict[str, Any], graph: fx.Graph, class_name: str = "TrainingGraph"
    ) -> None:
        super().__init__(root, graph, class_name)
        if isinstance(root, nn.Module):
            self.__dict__.update({name: root.__dict__[name] for name in _HELD})

    def train(self, mode: bool = True) -> Self:
        """The module in that mode, but for batch norms with frozen statistics."""
        super().train(mode)
        for part in self.modules():
            norm = frozen_norm(part)  # which stands under a path of its own too
            if norm is not None:
                norm.eval()
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # one for all
        """Every tensor once, by its name in the float model: as safetensors wants it."""
        found: dict[str, Any] = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        others = tuple(f"{prefix}{other}." for _, other in self._other_paths())
        floats = self.meta.get(FLOAT_STATE, ())
        own = [name for name in found if name.startswith(prefix)]
        seen: set[Any] = set()
        for name in sorted(own, key=lambda name: name.removeprefix(prefix) not in floats):
            if name.startswith(others) or _place(found[name]) in seen:
                del found[name]
            else:
                seen.update(filter(None, (_place(found[name]),)))
        return found

    def _other_paths(self) -> Iterator[tuple[str, str]]:
        """(path, other path) of modules that stand in several places; the first is the float's."""
        paths: dict[nn.Module, list[str]] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            paths.setdefault(module, []).append(path)
        floats = self.meta.get(FLOAT_STATE, ())
        for found in paths.values():
            kept = [path for path in found if any(n.startswith(f"{path}.") for n in floats)]
            first = (kept or found)[0]
            yield from ((first, path) for path in found if path != first)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Adds other names of its tensors, and to one of the float model what it cannot have."""
        for path, other in self._other_paths():
            start = f"{prefix}{path}."
            for name in [name for name in state_dict if name.startswith(start)]:
                state_dict.setdefault(
                    f"{prefix}{other}.{name.removeprefix(start)}", state_dict[name]
                )
        own = super().state_dict(keep_vars=True)
        added = own.keys() - set(self.meta.get(FLOAT_STATE, own))
        there = {id(x): state_dict[prefix + n] for n, x in own.items() if prefix + n in state_dict}
        others = {other for _, other in self._other_paths()}
        is_float = not any(
            prefix + name in state_dict for name in added if name.rpartition(".")[0] not in others
        )
        for name, held in own.items():
            if prefix + name in state_dict:
                continue
            if id(held) in there:
                state_dict[prefix + name] = there[id(held)]
            elif name in added and is_float:
                state_dict[prefix + name] = held
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Modules by the paths of the float model, in its order.

        A norm is in the layer that it follows, too, which may come first; that path is left out.
        """
        paths = list(super().named_modules(None, prefix, remove_duplicate=False))
        if not remove_duplicate:
            yield from paths
            return
        seen = set() if memo is None else memo
        inner = {f"{path}.bn" for path, module in paths if isinstance(module, WithBatchNorm)}
        outside = {module for path, module in paths if path not in inner}
        for path, module in paths:
            if module in seen or (path in inner and module in outside):
                continue
            seen.add(module)
            yield path, module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it; one that was given halves and trains in float32 takes them still."""
        if self.meta.get(TAKES_HALVES):
            own = next((p.dtype for p in self.parameters()), torch.float32)
            args, kwargs = in_float32((args, kwargs)) if own == torch.float32 else (args, kwargs)
        return super().__call__(*args, **kwargs)

    def _deepcopy_init(self) -> Callable[..., None]:
        return TrainingGraph.__init__

    def __reduce__(self) -> tuple[Any, ...]:
        """The rows of the graph, and everything else."""
        rest = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_integer")}
        return _restored, (rest, tuple(map(_row, self.graph.nodes)), type(self).__name__)


def picklable(body: Any) -> TrainingGraph:
    """A branch or body that torch.export made, and those inside of it, as graphs that are saved."""
    for name, inner in body.named_children():
        setattr(body, name, picklable(inner))
    return TrainingGraph(body, body.graph, "Body")


def _place(x: object) -> object:
    """Where a tensor lies in memory; None: nowhere."""
    if not isinstance(x, torch.Tensor) or x.is_meta or not x.numel():
        return None
    return x.data_ptr(), x.shape, x.stride()


class _NodeName(str):
    """Stands for a node among saved arguments."""

    __slots__ = ()


class _OperatorName(str):
    """Stands for an operator of torch.ops, as "aten.add.Tensor"; "cond" for a higher-order one."""

    __slots__ = ()


_Row = tuple[str, str, Any, Any, Any, dict[str, Any]]


def _row(node: fx.Node) -> _Row:
    target: Any = node.target
    if isinstance(target, OpOverload | HigherOrderOperator):
        target = _OperatorName(target)
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: _NodeName(n.name))
    meta = {key: node.meta[key] for key in _KEPT_META if key in node.meta}
    return node.op, node.name, target, args, kwargs, meta


def _restored(rest: dict[str, Any], rows: tuple[_Row, ...], name: str) -> TrainingGraph:
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}

    def found(leaf: Any) -> Any:
        return nodes[leaf] if isinstance(leaf, _NodeName) else leaf

    for op, called, target, args, kwargs, meta in rows:
        if isinstance(target, _OperatorName):
            place = torch.ops if "." in target else torch.ops.higher_order
            target = operator.attrgetter(target)(place)
        args, kwargs = (fx.node.map_aggregate(x, found) for x in (args, kwargs))
        nodes[called] = graph.create_node(op, target, args, kwargs, called)
        nodes[called].meta.update(meta)
    root = nn.Module()
    root.__dict__.update(rest)
    made = TrainingGraph(root, graph, name)
    made.__dict__.update({key: value for key, value in rest.items() if key not in made.__dict__})
    made.meta = rest.get("meta", {})
    made.training = rest["training"]
    return made
