"""Writes of forward into buffers in train mode alone: running means, counters, codebooks.

    if self.training: self.mean.mul_(0.9).add_(0.1 * y.mean(0))

A program of eval mode has none of it. The operators come from a second program, of train mode; what
they read is found in the first one, where the same operator has the same inputs. They stay as they
are: no layer, and nothing random, is among them.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.nn.modules.batchnorm import _NormBase

from onnxq.pytorch.modules.adapter import DROPOUTS, TRAINS
from onnxq.pytorch.programs.graph_module import TrainingGraph
from onnxq.pytorch.programs.leaf_calls import LAYERS
from onnxq.pytorch.programs.out_of_place import is_mutation

_RATE = 1  # position in a dropout


@dataclass(frozen=True, slots=True)
class BufferUpdate:
    """Operators that write into buffers, at one place of a program.

    Attributes:
        steps: graph of them; its placeholders are what they read and write.
        reads: for each placeholder, the name of a node of the program or the path of a buffer.
        behind: name of the node of the program behind which they run; None: at the beginning.
    """

    steps: fx.Graph
    reads: tuple[str, ...]
    behind: str | None


class Updating(nn.Module):
    """Runs the operators of an update in train mode."""

    _is_impure = True  # torch.fx: not to be left out, though nothing reads it

    def __init__(self, steps: fx.Graph) -> None:
        super().__init__()
        self.steps = TrainingGraph({}, steps)

    def forward(self, *tensors: Any) -> None:
        """Writes into the buffers among these."""
        if self.training:
            with torch.no_grad():
                self.steps(*tensors)


def left_out(
    model: nn.Module, program: ExportedProgram, changed: Collection[str]
) -> frozenset[str]:
    """Buffers that a run in train mode changed, and neither the program nor a layer updates."""
    written = {_path(program, _base(node)) for node in program.graph.nodes if is_mutation(node)}
    parts = dict(model.named_modules(remove_duplicate=False))
    return frozenset(
        name
        for name in changed
        if name not in written
        and not isinstance(parts[name.rpartition(".")[0]], _NormBase)
        and ".parametrizations." not in f".{name}"  # which the training graph calls as a module
    )


def buffer_updates(
    program: ExportedProgram, trained: ExportedProgram, buffers: Collection[str]
) -> tuple[BufferUpdate, ...]:
    """The updates of buffers in a program of train mode, by the nodes of one of eval mode."""
    found = _Found(program, trained)
    updates: dict[str | None, list[fx.Node]] = {}
    for node in trained.graph.nodes:
        if is_mutation(node) and _path(trained, _base(node)) in buffers:
            if found.needed([node]) is None:
                return ()
            updates.setdefault(found.behind(node), []).append(node)
    return tuple(found.update(nodes, behind) for behind, nodes in updates.items())


class _Found:
    """Nodes of a program of train mode, where they stand in one of eval mode."""

    def __init__(self, program: ExportedProgram, trained: ExportedProgram) -> None:
        names = {key: node.name for node, key in _keys(program).items() if node.op != "output"}
        self._trained = trained
        self._order = {node: i for i, node in enumerate(trained.graph.nodes)}
        self._names = {node: names[key] for node, key in _keys(trained).items() if key in names}

    def behind(self, node: fx.Node) -> str | None:
        """Name of the last node ahead of this one that both programs have."""
        ahead = [
            n for n in self._names if n.op != "placeholder" and self._order[n] < self._order[node]
        ]
        return self._names[max(ahead, key=self._order.__getitem__)] if ahead else None

    def needed(self, nodes: Iterable[fx.Node]) -> list[fx.Node] | None:
        """The nodes and what they read that eval mode has not; None: a layer or chance is in it."""
        seen: set[fx.Node] = set()
        left = list(nodes)
        while left:
            node = left.pop()
            if node in seen or (node in self._names and not is_mutation(node)):
                continue
            if node.op == "placeholder":
                continue
            tags = getattr(node.target, "tags", ())
            if node.target in LAYERS or torch.Tag.nondeterministic_seeded in tags:
                return None
            seen.add(node)
            left += node.all_input_nodes
        return sorted(seen, key=self._order.__getitem__)

    def update(self, nodes: list[fx.Node], behind: str | None) -> BufferUpdate:
        """The graph of some writes."""
        graph = fx.Graph()
        values: dict[fx.Node, fx.Node] = {}
        reads: list[str] = []

        def value(node: fx.Node) -> fx.Node:
            if node not in values:
                values[node] = graph.placeholder(f"read_{len(reads)}")
                path = _path(self._trained, node)
                reads.append(path if path is not None else self._names[node])
            return values[node]

        for node in self.needed(nodes) or ():
            values[node] = graph.node_copy(node, value)
        graph.output(())
        return BufferUpdate(graph, tuple(reads), behind)


def _keys(program: ExportedProgram) -> Mapping[fx.Node, Hashable]:
    """Key of what each node computes, from the inputs on; equal in both modes."""
    keys: dict[fx.Node, Hashable] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            keys[node] = _path(program, node) or node.name
            continue
        args = list(node.args)
        if node.target in TRAINS:
            args[TRAINS[node.target] :] = []
        if node.target in DROPOUTS:
            args[_RATE:] = []
        read = fx.node.map_arg((tuple(args), node.kwargs), lambda one: f"<{hash(keys[one])}>")
        keys[node] = (str(node.target), str(read))
    return keys


def _base(node: fx.Node) -> fx.Node:
    """The tensor that a node writes into, behind views of it."""
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _path(program: ExportedProgram, node: fx.Node) -> str | None:
    """Path of the parameter or buffer that a node is."""
    signature = program.graph_signature
    return {**signature.inputs_to_parameters, **signature.inputs_to_buffers}.get(node.name)
