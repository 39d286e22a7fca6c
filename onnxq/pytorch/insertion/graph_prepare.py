"""A traced module with fake-quantize modules where onnxq.prepare puts its quantizers: it trains.

conv, bn, relu      become one intrinsic QAT module (a ReLU6 stays behind it, as a module)
conv, linear        become QAT modules
a quantized tensor  goes through a FakeQuantize; tensors of one group go through the same one
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from onnxq.errors import QConfigError, UnsupportedError, listed
from onnxq.pytorch.arguments.bound_inputs import Inputs, bind
from onnxq.pytorch.arguments.forward import copied
from onnxq.pytorch.insertion.annotate import annotate_program, training_mapping
from onnxq.pytorch.insertion.improved_start import check_improve, improved_form, start_improved
from onnxq.pytorch.insertion.operands import module_of
from onnxq.pytorch.modules.folding import folded
from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer
from onnxq.pytorch.modules.stubs import DeQuantStub
from onnxq.pytorch.modules.transposed import WEIGHTED
from onnxq.pytorch.nn.intrinsic import FUSED
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear
from onnxq.pytorch.nn.quantized.observed import bind_input
from onnxq.pytorch.numerics.all_observers import check_observed_values
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.pytorch.numerics.group import GroupMember, QParamsCopy, WholeBatch
from onnxq.pytorch.numerics.ranks import check_not_sharded
from onnxq.pytorch.programs.graph_module import FLOAT_STATE, TrainingGraph
from onnxq.pytorch.programs.program import Open, Program, program_of
from onnxq.pytorch.programs.train_mode import (
    check_same_form,
    gradient_notes,
    row_notes,
    train_mode_notes,
)
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.agreeing_sums import keep_sums
from onnxq.pytorch.train.annotations import (
    ANNOTATIONS,
    AnnotatedGroup,
    AnnotatedWeight,
    Annotations,
    operand,
)
from onnxq.pytorch.train.conversion import QAT_MAPPING
from onnxq.pytorch.train.modes import cover_train_mode, modes_of, restore_modes
from onnxq.pytorch.train.parametrizations import materialize_weights
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    default_qconfig_mapping,
)
from onnxq.qdq.sum_scales import Sum
from onnxq.static.arguments import check_mapping
from onnxq.static.planning.activation_qparams import qparams_of_range
from onnxq.static.prepare import backend_of
from onnxq.targets import Target

# --- Builders of prepared modules: a training graph is changed, one annotation at a time.

_FUSED: dict[tuple[type[nn.Module], ...], tuple[Any, Any]] = {
    kind.PARTS: (kind, QAT_MAPPING[kind]) for kind in FUSED if kind in QAT_MAPPING
}
_PLAIN: dict[type[nn.Module], Any] = {kind: QAT_MAPPING[kind] for kind in WEIGHTED}
_RELU = torch.ops.aten.relu.default
_MOVING = frozenset(
    (
        *("reshape", "view", "flatten", "unflatten", "permute", "transpose", "squeeze"),
        *("unsqueeze", "contiguous", "chunk", "split", "getitem", "select", "expand", "t"),
    )
)


class Builder:
    """Changes a traced module step by step."""

    folds_norms = False

    def __init__(self, traced: fx.GraphModule, found: Annotations) -> None:
        self._traced = traced
        self._found = found
        self._nodes: dict[str, fx.Node] = {node.name: node for node in traced.graph.nodes}
        self._makers: dict[fx.Node, FakeQuantize] = {}  # node that rounds -> with what
        self._folded: set[nn.Module] = set()  # with batch norm: their weights are their own
        self._paths: dict[str, str] = {}  # name of a rounded node -> path of its FakeQuantize
        self.fakes: dict[str, FakeQuantize] = {}  # tensor of the ONNX form -> what rounds it
        self._clamps = {
            node: group.clamp
            for group in found.groups
            for node in group.nodes
            if group.clamp is not None
        }

    def weight(self, weight: AnnotatedWeight) -> None:
        """Makes one module of a weighted module and what is folded into it."""
        node = self._nodes[weight.node]
        parts = [node, *([self._nodes[weight.norm]] if weight.norm else [])]
        modules: list[nn.Module] = [self._layer(weight), *map(self._called, parts[1:])]
        made, taken = self._made(weight, parts, modules)
        self._traced.set_submodule(weight.path, made)
        if weight.norm and self.folds_norms:
            self._folded.add(self._called(node))
        for part in taken[1:]:
            part.replace_all_uses_with(node)
            self._nodes[part.name] = node
            self._traced.graph.erase_node(part)

    def _made(
        self, weight: AnnotatedWeight, parts: list[fx.Node], modules: list[nn.Module]
    ) -> tuple[nn.Module, list[fx.Node]]:
        """The module that takes the place of these parts, and which parts it stands for."""
        raise NotImplementedError

    def _layer(self, weight: AnnotatedWeight) -> nn.Module:
        """The layer, with parameters; of zeros where it is given them."""
        called = self._called(self._nodes[weight.node])
        if isinstance(called, ParametrizedLayer) and called.takes_weight:
            return called.with_parameters()
        return self._traced.get_submodule(weight.path)

    def _called(self, node: fx.Node) -> nn.Module:
        module = module_of(self._traced, node)
        assert module is not None, "annotation looked at it"
        return module

    def _refused(self, weight: AnnotatedWeight, modules: list[nn.Module]) -> UnsupportedError:
        names = ", ".join(type(module).__name__ for module in modules)
        return UnsupportedError(
            f"'{weight.path}' ({names}): there is no module that has a quantized weight in its "
            f"place. Leave node '{weight.exported}' float in the qconfig."
        )

    def activation(self, group: AnnotatedGroup) -> None:
        """Leads every tensor of a group through one FakeQuantize."""
        self._number_nodes(group)
        fake = self._fake_quantize(group)
        numbers = [operand(node, position) for node, position, _, _ in group.numbers]
        self.fakes |= dict.fromkeys(group.tensors, fake)
        names = [*group.nodes, *numbers]
        sources = [*group.sources, *numbers]
        batch = WholeBatch(fake, len(sources)) if len(sources) > 1 else None
        for name in names:
            module: nn.Module = fake
            if batch is not None or name not in sources:
                slot = sources.index(name) if name in sources else None
                is_copy = slot is None and self._was_rounded(self._nodes[name], fake)
                module = (QParamsCopy if is_copy else GroupMember)(fake, batch, slot)
            self._round(self._nodes[name], name, module, fake)

    def _was_rounded(self, node: fx.Node, fake: FakeQuantize) -> bool:
        """Whether the node only moves what the FakeQuantize has rounded."""
        while node not in self._makers:
            name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
            module = module_of(self._traced, node)
            moves = name in _MOVING if module is None else isinstance(module, nn.Flatten)
            if not moves or not isinstance(node.args[0], fx.Node):
                return False
            node = node.args[0]
        return self._makers[node] is fake

    def _round(self, node: fx.Node, name: str, module: nn.Module, fake: FakeQuantize) -> None:
        path = self._free(f"{name}_fake_quant")
        self._traced.add_submodule(path, module)
        readers = list(node.users)
        with self._traced.graph.inserting_after(node):
            rounding = self._traced.graph.call_module(path, (node,))
        for reader in readers:
            reader.replace_input_with(node, rounding)
        self._makers[rounding] = fake
        self._paths[name] = f"{path}.fake_quant" if isinstance(module, GroupMember) else path

    def _number_nodes(self, group: AnnotatedGroup) -> None:
        """Numbers among the arguments become buffers, so that they can be rounded."""
        for node, position, _, value in group.numbers:
            name = operand(node, position)
            self._traced.register_buffer(name, torch.tensor(np.float32(value)))
            reader = self._nodes[node]
            with self._traced.graph.inserting_before(reader):
                self._nodes[name] = self._traced.graph.get_attr(name)
            reader.update_arg(position, self._nodes[name])

    def _free(self, path: str) -> str:
        while hasattr(self._traced, path):
            path += "_"
        return path

    def guards(self) -> None:
        """Marks what stays float between quantized tensors, so that it is exported that way."""
        for name in self._found.kept_float:
            node = self._nodes[name]
            rounded = node.all_input_nodes[0]
            path = self._free(f"{name}_stays_float")
            self._traced.add_submodule(path, DeQuantStub())
            with self._traced.graph.inserting_before(node):
                node.replace_input_with(rounded, self._traced.graph.call_module(path, (rounded,)))

    # --- inputs of weights

    def bind_inputs(self) -> None:
        """Every QAT module is told which FakeQuantize made its input: a bias has its scale."""
        for weight in self._found.weights:
            if weight.block_size is not None:
                continue  # its input is float
            node = self._nodes[weight.node]
            source: Any = node.args[0]
            while source not in self._makers:  # copies alone lie between, as annotation checked
                source = source.all_input_nodes[0]
            bind_input(self._traced.get_submodule(weight.path), self._makers[source])

    def finished(self, name: str) -> fx.GraphModule:
        """The module, with what the graph names and nothing else."""
        self._traced.graph.lint()
        for part in self._traced.modules():
            if isinstance(part, ParametrizedLayer) and part not in self._folded:
                part.clear_parameters()
        made = TrainingGraph(self._traced, self._traced.graph, name)
        made.meta[ANNOTATIONS] = self._found  # a deepcopy keeps meta, and no other attributes
        keep_sums(made, map(self._sum, self._found.sums))
        return made

    def _sum(self, one: Sum) -> Sum:
        inputs, outputs = (
            tuple(self._paths[str(name)] for name in side) for side in (one.inputs, one.outputs)
        )
        return replace(one, inputs=inputs, outputs=outputs)

    def _fake_quantize(self, group: AnnotatedGroup) -> FakeQuantize:
        made = fake_quantize_module(group.part)
        if group.range is None:
            return made
        fixed = FakeQuantize(made.spec.observer).enable_fake_quant(made.fake_quant_enabled)
        return fixed.fix(qparams_of_range(group.range, fixed.dtype))


class TrainingBuilder(Builder):
    """Weights are rounded, and activations too."""

    def _made(
        self, weight: AnnotatedWeight, parts: list[fx.Node], modules: list[nn.Module]
    ) -> tuple[nn.Module, list[fx.Node]]:
        readers = list(parts[-1].users)
        if weight.block_size is None and len(readers) == 1 and self._is_folded_relu(readers[0]):
            kinds = (*map(type, modules), nn.ReLU)
            if kinds in _FUSED:
                parts, modules = [*parts, readers[0]], [*modules, nn.ReLU()]
        kinds = tuple(map(type, modules))
        if weight.block_size is not None:
            layer: Any = modules[0]
            layer.qconfig = QConfigDynamic(weight.part, block_size=weight.block_size)
            return GroupwiseLinear.from_float(layer), parts
        if kinds in _FUSED:
            fused, trained = _FUSED[kinds]
            float_module = fused(*modules)
        elif len(kinds) == 1 and kinds[0] in _PLAIN:
            trained, float_module = _PLAIN[kinds[0]], modules[0]
        else:
            raise self._refused(weight, modules)
        # of a module's qconfig the weight's part counts: activations have modules of their own
        float_module.qconfig = QConfig(weight.part, weight.part)
        return trained.from_float(float_module), parts

    def _is_folded_relu(self, node: fx.Node) -> bool:
        if self._clamps.get(node.name) != (0.0, float("inf")):
            return False
        return node.target is _RELU or isinstance(module_of(self._traced, node), nn.ReLU)

    def _fake_quantize(self, group: AnnotatedGroup) -> FakeQuantize:
        if isinstance(group.part, FakeQuantSpec):
            return super()._fake_quantize(group)
        raise QConfigError(
            f"tensors {', '.join(group.nodes.values())}: the qconfig has the observer "
            f"{group.part}, which does not round; training wants a FakeQuantSpec. Use "
            "get_default_qat_qconfig(), or FakeQuantize.with_args(observer=...)."
        )


class ObservingBuilder(Builder):
    """Float modules, batch norm folded, that know how their weights will be quantized."""

    folds_norms = True

    def _made(
        self, weight: AnnotatedWeight, parts: list[fx.Node], modules: list[nn.Module]
    ) -> tuple[nn.Module, list[fx.Node]]:
        made: Any = modules[0]
        if weight.block_size is not None:
            raise UnsupportedError(
                f"'{weight.path}' is to have its weight alone quantized, in blocks: there is "
                "nothing to observe. Call quantize_dynamic with that block size; or "
                "prepare_qat, to train it."
            )
        if type(made) not in _PLAIN:
            raise self._refused(weight, modules)
        if len(modules) > 1:
            made = folded(made, modules[1])
        made.qconfig = QConfig(weight.part, weight.part)
        return made, parts


def prepare_graph_qat(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> fx.GraphModule:
    """A copy of the model that trains with fake quantization: prepare_qat with `inputs`."""
    check_not_sharded(model, "prepare_qat")
    mapping = training_mapping(qconfig, target)
    check_improve(mapping.algorithms)
    modes = modes_of(model)
    program = _program(model, inputs, mapping)
    check_same_form(model, program)
    traced = training_graph(copied(model), program)
    train = (*train_mode_notes(traced, program), *gradient_notes(model, traced, program))
    for note in train:
        warnings.warn(note, stacklevel=4)
    float_state = tuple(nn.Module.state_dict(traced))  # all names of each tensor
    builder = _built(TrainingBuilder, traced, program, mapping, target, train)
    prepared = builder.finished(type(model).__name__)
    prepared.meta[FLOAT_STATE] = float_state  # it takes checkpoints of the float model
    bound = bind(model, inputs)
    prepared.eval()
    with torch.no_grad():
        prepared(*bound.args, **bound.kwargs)  # every FakeQuantize has seen data
    check_observed_values(prepared)
    found = prepared.meta[ANNOTATIONS]
    notes = found.notes
    if mapping.algorithms:
        made = improved_form(program, mapping, target, found)
        notes += start_improved(prepared, made, found, builder.fakes)
    restore_modes(prepared.train(), modes)
    notes = (*notes, *modes.notes, *cover_train_mode(prepared, bound))
    prepared.meta[ANNOTATIONS] = replace(found, notes=notes)
    return prepared


def prepare_graph(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> fx.GraphModule:
    """A copy of the model that observes, batch norm folded; what prepare gives with `inputs`."""
    check_mapping(qconfig)
    mapping = default_qconfig_mapping(backend_of(target)) if qconfig is None else qconfig
    if mapping.algorithms:
        raise QConfigError(
            f"prepare: the qconfig asks for the PTQ algorithms {listed(mapping.algorithms)}, which "
            "look at the samples again once they were observed. Take them out with "
            "qconfig.set_improve(()); onnxq.quantize and prepare_qat carry them out."
        )
    program = _program(model, inputs, mapping)
    traced = training_graph(copied(model), program)
    builder = _built(ObservingBuilder, traced, program, mapping, target)
    return builder.finished(type(model).__name__).eval()


def _program(model: nn.Module, inputs: Inputs, qconfig: QConfigMapping) -> Program:
    # names are of a model whose lengths are fixed, as onnxq.export makes it
    is_named = bool(qconfig.nodes or qconfig.tensors)
    return program_of(model, inputs, left_open=Open.BATCH if is_named else Open.LENGTHS)


def _built(
    kind: type[Builder],
    traced: TrainingGraph,
    program: Program,
    qconfig: QConfigMapping,
    target: str | Target | None,
    notes: tuple[str, ...] = (),
) -> Builder:
    for note in (of_rows := row_notes(traced, program)):
        warnings.warn(note, stacklevel=5)
    notes = (*of_rows, *notes)
    found = annotate_program(traced, program, qconfig, target)
    found = replace(found, notes=(*found.notes, *program.notes, *notes))
    materialize_weights(traced)  # of which folded ones are made
    builder = kind(traced, found)
    for weight in found.weights:
        builder.weight(weight)
    for group in found.groups:
        builder.activation(group)
    builder.guards()
    builder.bind_inputs()
    return builder
