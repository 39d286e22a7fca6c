"""Sites of smoothing: tensors whose channels linear layers sum over, and who takes the factors.

    T'[c] = f[c] T[c]       constants ahead times f       constants of all readers divided by f

What an operator makes of factors is its own knowledge (`Operator.scaled`, `Operator.undone`); here
they are followed from a tensor back to constants: through a Relu, a transposition, the attention
MatMul whose values are columns. All numbers of the model's outputs stay, up to float rounding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.core.arrays import Reals
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.edit import FreeNames, divider_name, insert_behind, new_initializer
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input, input_at, tensor_of
from onnxq.qconfig import NotSet
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.prepared import Prepared
from onnxq.weights.integer_layers import integer_layers


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A constant input that is to be multiplied."""

    node: ir.Node
    slot: int
    factor: Reals


@dataclass(frozen=True, slots=True, eq=False)
class Carriers:
    """All that changes where a tensor is multiplied: constants, and tensors on the way."""

    constants: tuple[Scaled, ...]
    tensors: tuple[ir.Value, ...]


def carriers(value: ir.Value, factor: Reals, readers: Iterable[ir.Node]) -> Carriers | None:
    """Carriers that multiply `value` by the factor; None: it has no constants that could.

    Args:
        value: a tensor that nodes give.
        factor: above 0, of the tensor's rank, of size 1 along axes where it does not vary.
        readers: who reads the tensor as it is to become; another reader forbids it.
    """
    node = value.producer()
    if node is None or value.is_graph_output() or not _is_exact(value, factor):
        return None
    if any(use.node not in set(readers) for use in value.uses()):
        return None
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or len({id(x) for x in node.inputs}) < len(node.inputs):
        return None
    for way in operator.scaled(node, factor):
        found = _through(node, way)
        if found is not None:
            return Carriers(found.constants, (value, *found.tensors))
    return None


def _through(node: ir.Node, way: Mapping[int, Reals]) -> Carriers | None:
    """Carriers of factors of a node's inputs."""
    constants: list[Scaled] = []
    tensors: list[ir.Value] = []
    for slot, factor in way.items():
        value = find_input(node, slot)
        if value is None:
            continue
        if constant(value) is not None:
            if not is_float_constant(value):
                return None
            constants.append(Scaled(node, slot, factor))
            continue
        found = carriers(value, factor, [node])
        if found is None:
            return None
        constants += found.constants
        tensors += found.tensors
    return Carriers(tuple(constants), tuple(tensors))


def undoing(
    value: ir.Value, factor: Reals, readers: Sequence[ir.Node]
) -> tuple[Scaled, ...] | None:
    """Constants of these readers that leave their results as they are where `value` is divided.

    Args:
        value: read as input 0, and nowhere else, by each of them.
        factor: of the value's rank.
        readers: nodes.
    Returns:
        One or more per reader; None: a reader has none.
    """
    found: list[Scaled] = []
    for node in readers:
        operator = catalog.find(node.op_type, node.domain)
        if operator is None or [slot for slot, x in enumerate(node.inputs) if x is value] != [0]:
            return None
        way = operator.undone(node, factor)
        if way is None or any(not is_float_constant(input_at(node, slot)) for slot in way):
            return None
        found += [Scaled(node, slot, each) for slot, each in way.items()]
    return tuple(found)


def multiply(scaled: Scaled, exchange: ConstantExchange) -> None:
    """Puts the product into the slot; others who read the constant keep theirs."""
    value = input_at(scaled.node, scaled.slot)
    tensor, factor = tensor_of(value), scaled.factor
    while factor.ndim > len(tensor.shape) and factor.shape[0] == 1:
        factor = factor[0]
    shape = np.broadcast_shapes(tensor.shape.numpy(), factor.shape)
    exchange.put(
        scaled.node,
        scaled.slot,
        derived(lambda: (tensor.numpy() * factor).astype(np.float32), ir.DataType.FLOAT, shape),
        f"{value.name}_scaled",
        (scaled.slot, factor.tobytes(), factor.shape),
    )


def is_float_constant(value: ir.Value) -> bool:
    """Whether it is a float32 constant."""
    tensor = constant(value)
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT


def _is_exact(value: ir.Value, factor: Reals) -> bool:
    """Whether the tensor has exactly the sizes along which the factor varies."""
    if value.shape is None or len(value.shape) != factor.ndim:
        return False
    return all(size == 1 or value.shape[axis] == size for axis, size in enumerate(factor.shape))


@dataclass(frozen=True, slots=True)
class SmoothingSite:
    """A tensor that may have a factor per channel.

    Attributes:
        tensor: its name.
        readers: the layers in integers that read it, by name.
        folds: whether constants ahead take the factors, and all readers undo them; else a Mul ahead
            of `readers`.
    """

    tensor: str
    readers: tuple[str, ...]
    folds: bool


def sites_of(prepared: Prepared, objective: Objective = Objective.SPEED) -> list[SmoothingSite]:
    """The sites of a model, channels on the last axis, in the order in which their readers run.

    Tensors to which the plan gives factors anyway, at no cost to any weight, are none
    (onnxq.static.insertion.channel_scales).
    """
    readers: dict[ir.Value, list[ir.Node]] = {}
    for layer in integer_layers(prepared, objective).values():
        node, x = layer.node, _divisible_input(layer.node)
        if x is not None and node.graph is prepared.model.graph:
            readers.setdefault(x, []).append(node)
    gained = prepared.channel_scales
    found = (_site(x, n, prepared) for x, n in readers.items() if value_name(x) not in gained)
    return [site for site in found if site is not None]


def _site(x: ir.Value, nodes: Sequence[ir.Node], prepared: Prepared) -> SmoothingSite | None:
    names, factor = tuple(map(node_name, nodes)), _probe(x)
    users = list(dict.fromkeys(use.node for use in x.uses()))
    carried = carriers(x, factor, users)
    tensors = () if carried is None else carried.tensors
    entries = [prepared.qconfig.for_tensor(value_name(v)) for v in tensors]
    named = any(not isinstance(entry, NotSet) for entry in entries)  # to keep name and numbers
    if carried is not None and not named and undoing(x, factor, users) is not None:
        return SmoothingSite(value_name(x), names, True)
    if _is_quantized(x, prepared.decisions):
        return None
    return SmoothingSite(value_name(x), names, False)


def _divisible_input(node: ir.Node) -> ir.Value | None:
    """Input of a layer in integers whose weight can take factors of channels."""
    x = node.inputs[0] if node.inputs else None
    if x is None or x.const_value is not None or x.shape is None:
        return None
    size = x.shape[-1] if len(x.shape) else None
    if not isinstance(size, int) or size < 2:
        return None
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or operator.unfolded(node) is None:
        return None
    return None if operator.undone(node, _probe(x)) is None else x


def _probe(x: ir.Value) -> Reals:
    """Any factors of the tensor's channels, to ask whether some can be carried."""
    assert x.shape is not None
    size = x.shape[-1]
    assert isinstance(size, int)
    return along(np.linspace(1, 2, size), len(x.shape))


def _is_quantized(x: ir.Value, decisions: Mapping[str, Decision]) -> bool:
    """Whether the tensor is quantized in any case, so that a Mul behind it helps nothing."""
    producer = x.producer()
    decision = None if producer is None else decisions[node_name(producer)]
    return isinstance(decision, Quantize) and value_name(x) in decision.results


def along(factors: Reals, rank: int) -> Reals:
    """Factors (channels,) as an array of that rank, channels last."""
    return factors.reshape([1] * (rank - 1) + [-1])


def with_smoothing_scales(model: ir.Model, chosen: Mapping[SmoothingSite, Reals]) -> ir.Model:
    """A model that computes the same, with each site's tensor divided by its factors.

    Tensors that carry factors have names of their own, so that nothing compares them with those of
    the model that was given.
    """
    copy = model.clone()
    names, exchange = FreeNames(copy), ConstantExchange(copy)
    nodes = {node_name(node): node for node, _ in walk(copy.graph)}
    values = {value_name(v): v for node in nodes.values() for v in node.outputs if v.name}
    values |= {value_name(v): v for v in copy.graph.inputs}
    for site, factors in chosen.items():
        x = values[site.tensor]
        assert x.shape is not None  # of a site
        factor = along(factors, len(x.shape))
        if site.folds:
            users = list(dict.fromkeys(use.node for use in x.uses()))
            carried, undone = carriers(x, 1 / factor, users), undoing(x, factor, users)
            assert carried is not None, "looked at by sites_of"
            assert undone is not None
            for each in (*carried.constants, *undone):
                multiply(each, exchange)
            for tensor in carried.tensors:
                tensor.name = names.value(f"{tensor.name}_divided")
            continue
        readers = [nodes[name] for name in site.readers]
        undone = undoing(x, factor, readers)
        assert undone is not None
        for each in undone:
            multiply(each, exchange)
        _insert_mul(copy.graph, x, readers, 1 / factors, names)
    exchange.share()
    return copy


def _insert_mul(
    graph: ir.Graph, x: ir.Value, readers: Sequence[ir.Node], factors: Reals, names: FreeNames
) -> None:
    """Lets the readers read x * factors."""
    name = names.value(f"{x.name}_factors")
    constant = new_initializer(graph, name, ir.Tensor(factors.astype(np.float32), name=name))
    node = ir.node("Mul", [x, constant], name=names.node(divider_name(value_name(x))))
    result = node.outputs[0]
    result.name, result.type, result.shape = names.value(f"{x.name}_divided"), x.type, x.shape
    insert_behind(x, node, graph)
    for reader in readers:
        reader.replace_input_with(0, result)
