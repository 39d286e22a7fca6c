"""Operators of a program that write into a tensor, as operators that make a new one.

    y.mul_(2)            y' = y * 2
    y[:, 0].mul_(2)      y' = select_scatter(y, y[:, 0] * 2)

What reads y, or a part of it, behind the operator reads y' from then on, so that a quantizer that
sits between is seen by all that reads the tensor. Writes into buffers of the model stay.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

aten = torch.ops.aten

_SCATTERS: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
}
_INVERSES: dict[Any, Callable[[fx.Node], tuple[Any, tuple[Any, ...]]]] = {
    aten.alias.default: lambda _: (aten.alias.default, ()),
    aten.transpose.int: lambda node: (aten.transpose.int, tuple(node.args[1:])),
    aten.unsqueeze.default: lambda node: (aten.squeeze.dim, (node.args[1],)),
    aten.t.default: lambda _: (aten.t.default, ()),
}


def make_out_of_place(program: ExportedProgram) -> None:
    """Rewrites the program in place; operators that cannot be rewritten stay as they are."""
    _Pass(program).run()


class _Pass:
    """One walk along a program."""

    def __init__(self, program: ExportedProgram) -> None:
        self._graph = program.graph
        self._user_inputs = set(map(str, program.graph_signature.user_inputs))
        self._now: dict[fx.Node, fx.Node] = {}  # node -> what has its place from here on
        self._same: dict[fx.Node, fx.Node] = {}  # what a write returned -> what it wrote into
        self._views: dict[fx.Node, fx.Node] = {}  # view -> what it is a view of, in the program
        self._views_of: dict[fx.Node, list[fx.Node]] = {}  # the other way round
        self._stale: set[fx.Node] = set()
        self._replaced: list[fx.Node] = []

    def run(self) -> None:
        """Visits all nodes in order."""
        for node in list(self._graph.nodes):
            source = self._root(node.args[0]) if _is_view(node) else None
            with self._graph.inserting_before(node):
                if not self._mutate(node):
                    node.args, node.kwargs = self._current((node.args, node.kwargs))
            if source is not None:
                self._views[node] = source
                self._views_of.setdefault(source, []).append(node)
        for node in self._replaced:
            self._graph.erase_node(node)
        self._graph.lint()

    def _root(self, node: Any) -> fx.Node:
        """The tensor that a node names: x, of what x.add_(1) returned."""
        found: fx.Node = node
        while found in self._same:
            found = self._same[found]
        return found

    def _current(self, argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, self._value)

    def _value(self, node: fx.Node) -> fx.Node:
        node = self._root(node)
        if node in self._stale:
            self._stale.discard(node)
            args = (self._value(self._views[node]), *self._current(node.args[1:]))
            self._now[node] = self._made(node, node.target, args)
        return self._now.get(node, node)

    def _made(self, like: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """A node with the value and the origin of another one."""
        node: fx.Node = self._graph.call_function(target, args)
        node.meta = dict(like.meta)
        return node

    def _mutate(self, node: fx.Node) -> bool:
        """Whether a node wrote into a tensor, and makes a new one now."""
        if not is_mutation(node):
            return False
        written = self._root(node.args[0])
        chain, target = self._chain(written), _functional_form(node.target)
        if chain is None or target is None:
            return False
        if node.target is aten.copy_.default:
            self._now[written] = self._copied(node)
            self._replaced.append(node)
        else:
            node.args, node.kwargs = self._current((node.args, node.kwargs))
            node.target = target
            self._now[written] = node
        self._same[node] = written
        self._stale.discard(written)
        with self._graph.inserting_before(node.next):
            for view, source in itertools.pairwise(chain):
                self._write_back(view, source, node)
        self._outdate(chain)
        return True

    def _write_back(self, view: fx.Node, source: fx.Node, origin: fx.Node) -> None:
        args = self._current(view.args[1:])
        if view.target in _SCATTERS:
            target = _SCATTERS[view.target]
            made = self._made(source, target, (self._value(source), self._now[view], *args))
        else:
            target, rest = _INVERSES[view.target](view)
            made = self._made(source, target, (self._now[view], *rest))
        made.meta["nn_module_stack"] = origin.meta.get("nn_module_stack", {})
        self._now[source] = made

    def _copied(self, node: fx.Node) -> fx.Node:
        """Tensor that x.copy_(y) puts into x."""
        x, y = node.args[:2]
        wanted, got = x.meta["val"], y.meta["val"]  # type: ignore[union-attr]  # nodes
        made: fx.Node = self._current(y)
        if wanted.dtype != got.dtype:
            made = self._made(node, aten.to.dtype, (made, wanted.dtype))
        if tuple(wanted.shape) != tuple(got.shape):
            made = self._made(node, aten.expand_as.default, (made, self._current(x)))
        return made

    def _chain(self, written: fx.Node) -> list[fx.Node] | None:
        """The written view, what it is a view of, ...; None where it cannot be written back."""
        chain = [written]
        while chain[-1] in self._views:
            if chain[-1].target not in _SCATTERS and chain[-1].target not in _INVERSES:
                return None
            chain.append(self._views[chain[-1]])
        base = chain[-1]
        is_state = base.op == "placeholder" and base.name not in self._user_inputs
        return None if is_state else chain

    def _outdate(self, chain: list[fx.Node]) -> None:
        """Other views of what was written are taken again where they are read."""
        written, left = set(chain), list(chain)
        while left:
            views = [view for view in self._views_of.get(left.pop(), ()) if view not in written]
            self._stale.update(views)
            left += views


def is_mutation(node: fx.Node) -> bool:
    """Whether a node writes into its first argument."""
    alias = _alias(node.target)
    return alias is not None and alias.is_write


def _is_view(node: fx.Node) -> bool:
    """Whether a node gives a part of its first argument, and not a copy."""
    alias = _alias(node.target)
    return alias is not None and not alias.is_write


def _alias(target: object) -> Any:
    """Note in an operator's schema on its first argument."""
    if not isinstance(target, OpOverload):
        return None
    arguments = target._schema.arguments  # noqa: SLF001  # torch has no other way to ask
    return arguments[0].alias_info if arguments else None


def _functional_form(target: Any) -> OpOverload | None:
    """The operator that makes a new tensor: add for add_; None where there is none."""
    packet, _, overload = str(target).removeprefix("aten.").partition(".")
    found = getattr(getattr(aten, packet.removesuffix("_"), None), overload, None)
    return found if isinstance(found, OpOverload) else None
