"""Integers of a module's rounded tensors beside those that ONNX Runtime computed of them.

Layer by layer, each part of the module is given the tensors that ONNX Runtime really had, so that
what differs was computed there. Free running, both start from the same input, and a step that
differs early makes others differ behind it.

Both round the same real numbers. The module adds them up in float32, ONNX Runtime in integers, so
that a sum may come out on the other side of a tie: one LSB, in a few elements of a million.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnx_ir as ir
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from onnxq.core.arrays import Array
from onnxq.errors import UnsupportedError
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import flatten
from onnxq.pytorch.nn.quantized import Requantize
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.numerics.group import GroupMember
from onnxq.qdq.read import array_of, is_dequantize, is_quantize, one_scale
from onnxq.qdq.sum_scales import LARGEST
from onnxq.qdq.tidy import computes_in_threads
from onnxq.reference import Evaluator, integer_evaluator, integer_form
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import SaturationMode

_Y_SCALE = 6  # slot of QLinearConv
_IN_PLACE = ("Reshape", "Transpose", "Slice", "Clip")


# --- Engines that run an exported model: ONNX Runtime, and reference kernels in any arithmetic.


class Runs(Protocol):
    """A model that is ready to run."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """One array per named output; None: all, in the model's order."""


Engine = Callable[["ir.Model"], AbstractContextManager[Runs]]
"""Opens a model."""


def onnx_runtime(model: ir.Model) -> AbstractContextManager[Runs]:
    """The model on ONNX Runtime, whose kernels add as this machine does."""
    return runtime.open_session(model, threads=1 if computes_in_threads(model) else None)


def reference_kernels(
    model: ir.Model, saturation_mode: SaturationMode = SaturationMode.EXACT
) -> AbstractContextManager[Runs]:
    """The model on the reference kernels; its float nodes on ONNX Runtime."""
    integer = integer_form(model, saturation_mode)
    nodes = FloatNodes(integer)
    evaluator = integer_evaluator(integer, float_nodes=nodes, saturation_mode=saturation_mode)
    return contextlib.nullcontext(_Evaluated(evaluator))


class _Evaluated:
    """A reference evaluator, called as a session of ONNX Runtime."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        arrays: list[Array] = self._evaluator.run(outputs, feeds)
        return arrays


# --- Integers of a module beside those of the exported model.


class Feeding(enum.Enum):
    """Choice of what the parts of the module are given."""

    LAYER_BY_LAYER = "layer by layer"
    """The integers that ONNX Runtime computed ahead of them."""
    FREE_RUNNING = "free running"
    """Values that the module itself computed ahead of them."""


@dataclass(slots=True)
class TensorAgreement:
    """Counts how the integers of one tensor compare.

    Attributes:
        node: of the traced module.
        tensor: of the exported model.
        elements: compared so far.
        differing: how many of them differ.
        largest: difference in LSB, at most.
    """

    node: str
    tensor: str
    elements: int = 0
    differing: int = 0
    largest: int = 0

    @property
    def share(self) -> float:
        """Share of the elements that are equal."""
        return 1 - self.differing / max(self.elements, 1)

    def add(self, got: Array, wanted: Array) -> None:
        """Takes the integers of one batch."""
        lsb = np.abs(got.astype(np.int32) - wanted.astype(np.int32))
        self.elements += lsb.size
        self.differing += int(np.count_nonzero(lsb))
        self.largest = max(self.largest, int(lsb.max(initial=0)))


class Layers(NamedTuple):
    """How a batch compares."""

    tensors: list[TensorAgreement]
    outputs: list[tuple[Array, Array]]


def layer_by_layer(
    module: fx.GraphModule, model: ir.Model, engine: Engine, bound: BoundInputs
) -> Layers:
    """How a batch compares, each layer given the integers that the engine computed ahead of it."""
    with beside(module, model, Feeding.LAYER_BY_LAYER, engine) as both:
        return both.compare(bound)


@contextlib.contextmanager
def beside(
    module: fx.GraphModule, model: ir.Model, feeding: Feeding, engine: Engine = onnx_runtime
) -> Iterator[ModulePair]:
    """Module and model, to be run on the same batches."""
    exposed = expose(model, list(_quantized(model)))
    with engine(exposed.model) as session, torch.no_grad():
        yield ModulePair(module, model, exposed.outputs, session, feeding)


class ModulePair(fx.Interpreter):
    """A module and its exported model, side by side; the module runs node by node."""

    def __init__(
        self,
        module: fx.GraphModule,
        model: ir.Model,
        exposed: Mapping[str, str],
        session: Runs,
        feeding: Feeding,
    ) -> None:
        """Stores what `beside` opened; `exposed` names the integer outputs of the session."""
        super().__init__(module)
        self.feeding = feeding
        self.tensors: dict[str, TensorAgreement] = {}
        self._session = session
        self._exposed = exposed
        self._qparams = _quantized(model)
        self._outputs = [str(value.name) for value in model.graph.outputs]
        self._arrays: dict[str, Array] = {}  # of the model, for the batch that runs
        self._matched: set[str] = set()
        self._from_inputs: set[fx.Node] = set()

    def compare(self, bound: BoundInputs) -> Layers:
        """Runs both on a batch and compares their integers."""
        feeds = {name: x.detach().numpy() for name, x in bound.tensors.items()}
        names = [*self._outputs, *self._qparams]
        asked = [*self._outputs, *(self._exposed[name] for name in self._qparams)]
        self._arrays = dict(zip(names, self._session.run(feeds, asked), strict=True))
        given = bound.arguments
        inputs = self.graph.find_nodes(op="placeholder")
        result = self.run(*(given[str(node.target)] for node in inputs))
        outputs = [self._arrays[name] for name in self._outputs]
        wanted = [x.detach().numpy() for x in flatten(result)]
        return Layers([*self.tensors.values()], [*zip(outputs, wanted, strict=True)])

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; where it rounds, compared with ONNX Runtime's, and perhaps that one."""
        value = super().run_node(n)
        self._trace_inputs(n, value)
        quantizer = self._quantizer(n)
        if quantizer is None:
            return value
        integers = quantizer.integers(self.env[n.all_input_nodes[0]]).numpy()
        if n.name not in self.tensors:
            self._match(n, quantizer, integers)
        agreement = self.tensors[n.name]
        wanted = self._arrays[agreement.tensor]
        agreement.add(integers, wanted)
        if self.feeding is Feeding.FREE_RUNNING:
            return value
        scale, zero_point = quantizer.scale.numpy(), int(quantizer.zero_point)
        real = (wanted.astype(np.int32) - zero_point).astype(np.float32) * scale
        return torch.from_numpy(real)

    def _trace_inputs(self, node: fx.Node, value: object) -> None:
        """Notes a node whose tensors are computed from inputs, of which a size is no part."""
        read = any(source in self._from_inputs for source in node.all_input_nodes)
        tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))
        if node.op == "placeholder" or (read and tensors):
            self._from_inputs.add(node)

    def _quantizer(self, node: fx.Node) -> FakeQuantize | Requantize | None:
        if node.op != "call_module":
            return None
        module = self.module.get_submodule(str(node.target))
        if isinstance(module, GroupMember):
            module = module.fake_quant
        if not isinstance(module, FakeQuantize | Requantize):
            return None
        # of parameters alone, as position embeddings: stored as integers
        return module if node.all_input_nodes[0] in self._from_inputs else None

    def _match(self, node: fx.Node, quantizer: FakeQuantize | Requantize, integers: Array) -> None:
        """Finds the model's tensor by scale, zero point and shape; of several, the nearest one."""
        key = (float(quantizer.scale), int(quantizer.zero_point))
        shaped = [name for name in self._qparams if self._arrays[name].shape == integers.shape]
        fitting = [name for name in shaped if self._qparams[name] == key]
        fitting = fitting or [n for n in shaped if _is_increased(self._qparams[n], key)]
        unused = [name for name in fitting if name not in self._matched] or fitting
        if not unused:
            raise UnsupportedError(
                f"'{node.name}' rounds to scale {key[0]:.6g}, zero point {key[1]}, shape "
                f"{integers.shape}; the model has no such tensor. Was it exported from this "
                "module, as it is now?"
            )
        nearest = min(unused, key=lambda name: np.count_nonzero(self._arrays[name] != integers))
        self.tensors[node.name] = TensorAgreement(node.name, nearest)
        self._matched.add(nearest)


def _is_increased(found: tuple[float, int], before: tuple[float, int]) -> bool:
    """Whether convert may have made these qparams of a prepared module's (see agreeing_sums)."""
    return found[1] == before[1] and 0 < found[0] / before[0] - 1 <= LARGEST


def _quantized(model: ir.Model) -> dict[str, tuple[float, int]]:
    """Name of each tensor of integers that is computed -> its scale and zero point."""
    found = {}
    for node in model.graph:
        source = node.inputs[0] if node.inputs else None
        qparams = one_scale(node) if is_quantize(node) else None
        if qparams is None or source is None or source.is_initializer():
            continue
        integers = node.outputs[0]
        clips = [reader for reader in integers.consumers() if not is_dequantize(reader)]
        value = clips[0].outputs[0] if clips and clips[0].op_type == "Clip" else integers
        found[str(value.name)] = (float(qparams.scale), int(qparams.zero_point))
    return found | _written_out(model)


def _written_out(model: ir.Model) -> dict[str, tuple[float, int]]:
    """Integers of transposed convolutions, and of what puts them in their places."""
    found = {}
    for node in model.graph:
        if node.op_type != "QLinearConv":
            continue
        scale, zero_point = array_of(node, _Y_SCALE), array_of(node, _Y_SCALE + 1)
        assert scale is not None, "lowering writes constants"
        assert zero_point is not None
        values = [node.outputs[0]]
        for value in values:
            found[str(value.name)] = (float(scale), int(zero_point))
            values += [r.outputs[0] for r in value.consumers() if r.op_type in _IN_PLACE]
    return found
