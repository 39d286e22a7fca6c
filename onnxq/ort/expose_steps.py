"""Makes tensors in bodies of Scan and Loop outputs of the model, one value per step.

A tensor x in the body of a Scan becomes one more scan output of it: (steps, *x.shape), in the order
in which the steps run. In the body of a Loop it is appended to a sequence, which the Loop carries
from step to step: so values may have another shape in each, and a Loop without a step gives an
empty sequence. A branch of an If inside of a Loop gives an empty tensor (shape [0]) for the steps
in which the other one ran; a Scan or Loop in a branch is handed out as `expose` does it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.edit import NamePool, all_nodes, all_values, graph_of
from onnxq.graph.walk import IF, LOOP, SCAN
from onnxq.ort.expose import BRANCHES, lift

BODIES = (LOOP, SCAN)
KINDS = (
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.DOUBLE,
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.INT16,
    ir.DataType.UINT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
    ir.DataType.BOOL,
)
"""Types that go out as arrays."""
STATES_OF_SEQUENCES = 13  # opset from which a Loop may carry a sequence


@dataclass(frozen=True, slots=True)
class Steps:
    """Values of bodies that can be seen.

    Attributes:
        outputs: tensor -> name of the output with its values, stacked or as a sequence.
        hidden: tensor -> why it does not go out.
    """

    outputs: Mapping[str, str]
    hidden: Mapping[str, str]


def expose_steps(model: ir.Model, wanted: Callable[[ir.Node], bool]) -> Steps:
    """Adds outputs to the model, in place.

    Hidden stay bodies inside of other bodies, branches inside of a Scan (which wants values of one
    shape), Scans whose inputs have no shapes, and Loops before opset 13.
    """
    values = (v.name for graph in model.graphs() for v in all_values(graph))
    names = NamePool([*values, *(node.name for node in all_nodes(model))])
    opener = _Opener(names, model.opset_imports.get("", 0), wanted, {})
    outputs = {}
    for name, value in opener.from_bodies(model.graph):
        outputs[name] = str(value.name)
        model.graph.outputs.append(value)
    return Steps(outputs, opener.hidden)


Named = tuple[str, ir.Value]
"""A tensor's name, and the value that carries it."""


@dataclass(frozen=True, slots=True)
class _Opener:
    """State that all bodies of one model share."""

    names: NamePool
    opset: int
    wanted: Callable[[ir.Node], bool]
    hidden: dict[str, str]

    def from_bodies(self, graph: ir.Graph) -> Iterator[Named]:
        """Tensors of the bodies in a graph, with the values of this graph that carry them."""
        for node in list(graph):
            if node.domain:
                continue
            if node.op_type == IF:
                for branch in BRANCHES:
                    inner = list(self.from_bodies(node.attributes[branch].as_graph()))
                    yield from self._lifted(node, branch, inner)
            elif node.op_type in BODIES:
                yield from self._from_body(node)

    def _from_body(self, node: ir.Node) -> list[Named]:
        body = node.attributes["body"].as_graph()
        if reason := self._why_closed(node, body):
            self._hide(body, reason)
            return []
        needed = set(self._around(body))
        inside = list(self._owned(body, needed, node.op_type))
        if not inside:
            return []
        if node.op_type == SCAN:
            return [(name, self._stack(node, body, value)) for name, value in inside]
        return self._collect(node, body, inside)

    def _why_closed(self, node: ir.Node, body: ir.Graph) -> str:
        """Why nothing of this body can go out, or the empty string."""
        if node.op_type == LOOP and self.opset < STATES_OF_SEQUENCES:
            return "it is in the body of a Loop of an opset before 13"
        # ONNX Runtime wants to know the shapes of what a Scan collects
        if node.op_type == SCAN and any(value.shape is None for value in body.inputs):
            return "it is in the body of a Scan whose inputs have no shapes"
        return ""

    def _hide(self, graph: ir.Graph, reason: str) -> None:
        """Notes the reason for each tensor that a wanted node of the graph, or deeper, computes."""
        for node in graph.all_nodes():
            if self.wanted(node):
                self.hidden.update({str(v.name): reason for v in node.outputs if v.name})

    def _around(self, graph: ir.Graph) -> Iterator[ir.Value]:
        """Inputs and outputs of the wanted nodes, those in branches too."""
        for node in graph:
            if self.wanted(node):
                yield from (v for v in (*node.inputs, *node.outputs) if v is not None and v.name)
            if node.op_type == IF and not node.domain:
                for branch in BRANCHES:
                    yield from self._around(node.attributes[branch].as_graph())

    def _owned(self, graph: ir.Graph, needed: set[ir.Value], kind: str) -> Iterator[Named]:
        """The needed tensors of a graph and of its branches, as values of that graph."""
        own = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        for value in own:
            if value in needed and self._goes_out(value):
                yield str(value.name), value
        for node in list(graph):
            if node.domain or node.op_type not in (*BODIES, IF):
                continue
            every = node.attributes.items()
            graphs = {k: a.as_graph() for k, a in every if a.type is ir.AttributeType.GRAPH}
            for name, inner in graphs.items():
                if node.op_type in BODIES:
                    self._hide(inner, "it is in a body inside of another body")
                elif kind == SCAN:
                    self._hide(inner, "it is in a branch of an If in the body of a Scan")
                else:
                    found = list(self._owned(inner, needed, kind))
                    yield from self._lifted(node, name, found)

    def _goes_out(self, value: ir.Value) -> bool:
        """Whether it does; else the reason is noted."""
        if isinstance(value.type, ir.TensorType) and value.dtype in KINDS:
            return True
        self.hidden[str(value.name)] = (
            f"'{value.name}' in the body of a Loop or Scan is {value.type or 'of unknown type'}, "
            "which cannot be handed out step by step"
        )
        return False

    def _lifted(self, node: ir.Node, branch: str, inner: Iterable[Named]) -> Iterator[Named]:
        for name, value in inner:
            yield name, lift(value, node, branch, self.names)

    def _stack(self, scan: ir.Node, body: ir.Graph, value: ir.Value) -> ir.Value:
        copy = ir.node("Identity", [value], name=self.names.take(f"{value.name}_step_copy"))
        shown = copy.outputs[0]
        shown.name = self.names.take(f"{value.name}_step")
        shown.type, shown.shape = value.type, value.shape
        body.append(copy)
        body.outputs.append(shown)
        scan.resize_outputs(len(scan.outputs) + 1)
        for name in ("scan_output_directions", "scan_output_axes"):
            if name in scan.attributes:
                given = scan.attributes[name].as_ints()
                scan.attributes[name] = ir.AttrInt64s(name, [*given, 0])
        stacked = scan.outputs[-1]
        stacked.name, stacked.type = self.names.take(f"{value.name}_steps"), value.type
        return stacked

    def _collect(self, loop: ir.Node, body: ir.Graph, inside: Iterable[Named]) -> list[Named]:
        """Puts a Loop in the place of this one that carries a sequence per tensor."""
        graph = graph_of(loop)
        states = len(body.inputs) - 2
        starts: list[ir.Value] = []
        carried = []
        for name, value in inside:
            assert value.dtype is not None, "such tensors are hidden"
            kind = ir.SequenceType(ir.TensorType(value.dtype))
            start = ir.node(
                "SequenceEmpty",
                [],
                {"dtype": value.dtype.value},
                name=self.names.take(f"{name}_no_step"),
            )
            graph.insert_before(loop, start)
            before = ir.Value(name=self.names.take(f"{name}_before"), type=kind)
            add = ir.node(
                "SequenceInsert", [before, value], name=self.names.take(f"{name}_add_step")
            )
            body.append(add)
            body.inputs.append(before)
            body.outputs.insert(1 + states + len(starts), add.outputs[0])
            for made, label in ((start.outputs[0], "none"), (add.outputs[0], "until")):
                made.name, made.type = self.names.take(f"{name}_{label}"), kind
            starts.append(start.outputs[0])
            carried.append((name, kind))
        outputs = _replace_loop(loop, graph, starts, states)
        for (name, kind), value in zip(carried, outputs, strict=True):
            value.name, value.type = self.names.take(f"{name}_steps"), kind
        return [(name, value) for (name, _), value in zip(carried, outputs, strict=True)]


def _replace_loop(
    loop: ir.Node, graph: ir.Graph, starts: list[ir.Value], states: int
) -> list[ir.Value]:
    """The outputs of the new Loop that the old one lacks: one per start, behind its states."""
    given = [*loop.inputs, None, None][: max(len(loop.inputs), 2)]
    attributes = list(loop.attributes.values())
    loop.attributes.clear()  # a body belongs to one node
    new = ir.Node(
        "",
        LOOP,
        [*given, *starts],
        attributes,
        num_outputs=len(loop.outputs) + len(starts),
        name=loop.name,
    )
    graph.insert_before(loop, new)
    added = list(new.outputs[states : states + len(starts)])
    kept = [*new.outputs[:states], *new.outputs[states + len(starts) :]]
    for old, value in zip(loop.outputs, kept, strict=True):
        value.type, value.shape = old.type, old.shape
        value.name, old.name = old.name, None
        old.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.remove(loop, safe=True)
    return added
