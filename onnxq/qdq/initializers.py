"""The constants of the integer model: integers, scales and zero points, each made once."""

import hashlib

import onnx_ir as ir

from onnxq.graph.edit import NamePool, home_of, new_initializer
from onnxq.graph.walk import value_name
from onnxq.operator import Array
from onnxq.operator.nodes import tensor_of
from onnxq.qdq.tensors import half_tensor, integer_tensor, transposed
from onnxq.qdq.write import GraphQParams, NewConstant, new_graph_qparams
from onnxq.qparams import QParams
from onnxq.targets.bias_preserving import BiasPreservingRounding

_Integers = tuple[
    ir.Value,
    QParams | None,
    int | None,
    tuple[float, ...] | None,
    tuple[int, ...] | None,
    "BiasPreservingRounding | None",
    ir.Graph,
]
"""Key to tensors of integers: constant, qparams, integer limit, channel scale, order of axes,
sums that are kept, and the graph that holds them."""

_SHARED_BYTES = 1024  # of weights that a lowering has made; scales and biases are not looked at


class Initializers:
    """New initializers and their names."""

    def __init__(self, used: set[str]) -> None:
        self._names = NamePool(used)
        self._integers: dict[_Integers, tuple[ir.Value, str]] = {}
        self._qparams: dict[tuple[str, ir.Graph], GraphQParams] = {}
        self._adopted: dict[tuple[ir.Graph, ir.DataType, bytes], ir.Value] = {}
        self.replaced: dict[ir.Value, None] = {}

    @property
    def quantized(self) -> tuple[ir.Value, ...]:
        """The integer twins, among them those that a lowering has rearranged and reads no more."""
        return tuple(value for value, _ in self._integers.values())

    def unique(self, name: str) -> str:
        """`name` if it is free, else name_1, name_2 ...; given out once."""
        return self._names.take(name)

    def constants_of(self, graph: ir.Graph) -> NewConstant:
        """Makes initializers of that graph."""

        def new(name: str, array: Array) -> ir.Value:
            unique = self.unique(name)
            return new_initializer(graph, unique, ir.Tensor(array, name=unique))

        return new

    def adopt(self, graph: ir.Graph, value: ir.Value) -> None:
        """Registers a constant that a lowering made, or lets its readers read an equal one.

        Two calls of one module make the same weight twice.
        """
        tensor = tensor_of(value)  # a lowering gives its constants values
        if tensor.nbytes >= _SHARED_BYTES:
            digest = hashlib.sha256(repr(tensor.shape.numpy()).encode() + tensor.tobytes()).digest()
            one = self._adopted.setdefault((graph, tensor.dtype, digest), value)
            if one is not value:
                value.replace_all_uses_with(one)
                return
        value.name = self.unique(value_name(value))
        graph.register_initializer(value)

    def integers(
        self,
        value: ir.Value,
        qparams: QParams,
        integer_limit: int | None = None,
        channel_scale: tuple[float, ...] | None = None,
        perm: tuple[int, ...] | None = None,
        graph: ir.Graph | None = None,
        bias_preserving: BiasPreservingRounding | None = None,
    ) -> tuple[ir.Value, str]:
        """(integer initializer beside the float one, stem of the names around it).

        `qparams`: of the integers, in the layout in which they are stored.
        `integer_limit`: integers are clipped to [-integer_limit, integer_limit]; None: not.
        `channel_scale`: one factor per row that the constant is multiplied by first; None: none.
        `perm`: order of the constant's axes in which the integers are stored; None: as it is.
        `bias_preserving`: how they are rounded, in the stored layout; None: to the nearest.
        """
        home = home_of(value) if graph is None else graph
        key = (value, qparams, integer_limit, channel_scale, perm, bias_preserving, home)
        if key not in self._integers:
            stem = value_name(value)
            if f"{stem}_quantized" in self._names:  # a second layout of a tied weight
                stem = self.unique(f"{stem}_again")
            name = self.unique(f"{stem}_quantized")
            source = transposed(tensor_of(value), perm)
            tensor = integer_tensor(
                source, qparams, integer_limit, channel_scale, name, bias_preserving
            )
            self._integers[key] = (self._beside(value, tensor, name, home), stem)
        return self._integers[key]

    def half(
        self, value: ir.Value, perm: tuple[int, ...] | None = None, graph: ir.Graph | None = None
    ) -> ir.Value:
        """The float16 initializer, its axes in the order of perm; the rest as in `integers`."""
        home = home_of(value) if graph is None else graph
        key = (value, None, None, None, perm, None, home)
        if key not in self._integers:
            name = self.unique(f"{value_name(value)}_half")
            tensor = half_tensor(transposed(tensor_of(value), perm), name)
            self._integers[key] = (self._beside(value, tensor, name, home), name)
        return self._integers[key][0]

    def _beside(
        self, value: ir.Value, tensor: ir.TensorProtocol, name: str, graph: ir.Graph
    ) -> ir.Value:
        self.replaced[value] = None
        return new_initializer(graph, name, tensor)

    def graph_qparams(self, graph: ir.Graph, stem: str, qparams: QParams) -> GraphQParams:
        """Scale and zero point of the tensor `stem`, as initializers of this graph."""
        if (stem, graph) not in self._qparams:
            self._qparams[stem, graph] = new_graph_qparams(self.constants_of(graph), stem, qparams)
        return self._qparams[stem, graph]
