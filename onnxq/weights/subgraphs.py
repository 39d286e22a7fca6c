"""Segments of a model, from one layer to the next, as models of their own.

    nodes before layer 1 | layer 1, what is folded into it, nodes up to layer 2 | layer 2 ...

Run one after the other, batch by batch, they compute what the model computes, and each node runs
once: a layer can be changed when everything ahead of it is final, at the price of one run in all.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import OutputError
from onnxq.graph.walk import bodies, node_name, value_name, walk
from onnxq.ort import runtime
from onnxq.ort.matmul_add import matmul_add
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Nodes of the main graph that run together.

    Attributes:
        layer: name of the first one, where it is a layer; empty: it is none.
        reads: tensors of earlier subgraphs, and inputs of the model.
        gives: tensors that later subgraphs read, and outputs of the model.
    """

    nodes: tuple[str, ...]
    layer: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def subgraphs_of(
    nodes: Iterable[ir.Node], outputs: Iterable[str], layers: Collection[str]
) -> list[Subgraph]:
    """The subgraphs of a model, in order."""
    parts: list[list[ir.Node]] = [[]]
    for node in nodes:
        if node_name(node) in layers:
            parts.append([])
        parts[-1].append(node)
    reads = [[value_name(v) for v in _values(p) if not v.is_initializer()] for p in parts]
    wanted = set(outputs)
    found: list[Subgraph] = []
    for part, read in zip(reversed(parts), reversed(reads), strict=True):
        made = [value_name(v) for node in part for v in node.outputs if v.name]
        names = [node_name(node) for node in part]
        layer = names[0] if names and names[0] in layers else ""
        gives = tuple(name for name in made if name in wanted)
        outside = tuple(name for name in read if name not in set(made))
        found.append(Subgraph(tuple(names), layer, outside, gives))
        wanted |= set(outside)
    return [subgraph for subgraph in reversed(found) if subgraph.nodes]


def cut(
    source: ir.Model, nodes: Mapping[str, ir.Node], subgraph: Subgraph, outputs: Sequence[str]
) -> ir.Model:
    """The subgraph as a model that shares the weights of its source."""
    part = [nodes[name] for name in subgraph.nodes]
    values = list(_values(part))
    made = {value_name(v): v for node in part for v in node.outputs if v.name}
    view = ir.GraphView(
        [v for v in values if not v.is_initializer() and v.name in subgraph.reads],
        [made[name] for name in outputs],
        nodes=part,
        initializers=[v for v in values if v.is_initializer()],
        opset_imports=source.graph.opset_imports,
        name=source.graph.name,
    )
    return ir.Model(view.clone(), ir_version=source.ir_version)


def with_folded_behind(model: ir.Model, plan: Plan) -> Iterator[ir.Node]:
    """Nodes of the main graph, each followed by those that run as a part of it.

    These read its results and constants alone, so that they can run as early as that.
    """
    hosts: dict[str, list[ir.Node]] = {}
    folded: set[ir.Node] = set()
    for node in model.graph:
        decision = plan.decisions[node_name(node)]
        if isinstance(decision, Quantize) and decision.folded_into:
            hosts.setdefault(decision.folded_into, []).append(node)
            folded.add(node)
        fused = matmul_add(node)
        if fused is not None and fused.bias.is_initializer() and fused.add not in folded:
            added = plan.decisions[node_name(fused.add)]
            if not (isinstance(added, Quantize) and added.folded_into):
                hosts.setdefault(node_name(node), []).append(fused.add)
                folded.add(fused.add)
    for node in model.graph:
        if node not in folded:
            yield node
            yield from hosts.get(node_name(node), ())


def _values(nodes: Sequence[ir.Node]) -> Iterator[ir.Value]:
    """Values of the main graph that the nodes read, in their bodies too; each once."""
    home = nodes[0].graph if nodes else None
    found: dict[ir.Value, None] = {}
    for node in nodes:
        every = [node, *(inner for body in bodies(node) for inner, _ in walk(body))]
        read = [v for each in every for v in each.inputs]
        read += [v for each in every for body in bodies(each) for v in body.outputs]
        found |= {v: None for v in read if v is not None and v.graph is home}
    yield from found


# --- Activations between two subgraphs, for every batch: in memory, or in files beyond a limit


MOST_IN_MEMORY = 1 << 29
"""Size of all arrays that are kept in memory; more lie in temporary files."""


@dataclass(frozen=True, slots=True)
class _Place:
    """An array in the file of its tensor."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class SpilledArrays:
    """Arrays of tensors, by batch; a context manager that closes its files."""

    def __init__(self, share: float = 1.0) -> None:
        self._most = int(share * MOST_IN_MEMORY)
        self._arrays: dict[str, list[Array | _Place]] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._bytes = 0

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._arrays

    def add(self, tensor: str, array: Array) -> None:
        """Keeps the array of the tensor's next batch."""
        arrays = self._arrays.setdefault(tensor, [])
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            arrays.append(array)  # sequences and texts
        elif self._bytes + array.nbytes <= self._most:
            self._bytes += array.nbytes
            arrays.append(array)
        else:
            if tensor not in self._files:
                self._files[tensor] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `drop` or at the end
            offset = _appended(self._files[tensor], array)
            arrays.append(_Place(offset, array.dtype, array.shape))

    def get(self, tensor: str, batch: int) -> Array:
        """The array of the tensor's batch."""
        found = self._arrays[tensor][batch]
        if not isinstance(found, _Place):
            return found
        file = self._files[tensor]
        file.seek(found.offset)
        count = int(np.prod(found.shape, dtype=np.int64))
        data = file.read(count * found.dtype.itemsize)
        return np.frombuffer(data, found.dtype, count).reshape(found.shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            _close(file)

    def drop(self, tensor: str) -> None:
        """Forgets the arrays of a tensor."""
        for array in self._arrays.pop(tensor):
            if isinstance(array, np.ndarray) and not array.dtype.hasobject:
                self._bytes -= array.nbytes
        if tensor in self._files:
            _close(self._files.pop(tensor))


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # of an array that did not fit, which `add` said
        file.close()


def _appended(file: IO[bytes], array: Array) -> int:
    """Offset at which the array is now in the file."""
    try:
        offset = file.seek(0, 2)
        file.write(np.ascontiguousarray(array).data)
        file.flush()
    except OSError as error:
        raise OutputError(
            f"'{tempfile.gettempdir()}' takes no more of what layers give the samples: "
            f"{error.strerror or error}. Give fewer samples, free some space, or set TMPDIR to "
            "another folder."
        ) from error
    return offset


class ActivationCache:
    """Tensors that a model's subgraphs have made; a context manager that closes its files."""

    def __init__(
        self, feeds: SpilledArrays | ActivationCache, batches: int, share: float = 1.0
    ) -> None:
        self._feeds, self._batches, self._made = feeds, batches, SpilledArrays(share)

    def get(self, tensor: str, batch: int) -> Array:
        """The tensor's array of a batch."""
        if tensor in self._made:
            return self._made.get(tensor, batch)
        return self._feeds.get(tensor, batch)

    def advance(self, part: ir.Model) -> None:
        """Runs a subgraph on all batches, and keeps its outputs."""
        with opened(part) as session:
            self.run(session)

    def run(self, session: runtime.Session) -> None:
        """Runs a subgraph that is open already, as `advance`."""
        for batch in range(self._batches):
            made = session.run_named({name: self.get(name, batch) for name in session.inputs})
            for tensor, array in made.items():
                self._made.add(tensor, array)

    def drop(self, tensor: str) -> None:
        """Forgets a tensor, unless it is an input."""
        if tensor in self._made:
            self._made.drop(tensor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._made.__exit__(*exception)


def opened(part: ir.Model) -> runtime.Session:
    """A session of a subgraph, of one thread: its sums are the same everywhere."""
    return runtime.open_session(
        part, threads=1, memory=runtime.Memory.ON_DEMAND, weights=runtime.Weights.FILES
    )
