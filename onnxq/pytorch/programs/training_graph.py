"""The module that trains what a program of torch.export computes.

    program (eval mode)  -->  graph of layers, functions and parameters, on the model's own modules

Batch norm and dropout are calls of modules, so that train() and eval() hold. The result is called
as the model is, and returns what it returns.
"""

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onnxq.pytorch.arguments.flat import HOOKS
from onnxq.pytorch.arguments.nesting import replaced
from onnxq.pytorch.exporting.packed_sequences import run_recurrence
from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer
from onnxq.pytorch.modules.transposed import WEIGHTED
from onnxq.pytorch.programs import call_form
from onnxq.pytorch.programs.buffer_updates import Updating
from onnxq.pytorch.programs.graph_module import TrainingGraph, picklable
from onnxq.pytorch.programs.leaf_calls import (
    LeafCalls,
    LinearCall,
    arguments,
    linear_call,
    scope,
    scopes,
)
from onnxq.pytorch.programs.own_gradients import AppliedFunction, FunctionCall
from onnxq.pytorch.programs.program import Program

aten = torch.ops.aten

PROGRAM_NODES = "program_nodes"
"""Key of a node's meta: names of the program's nodes that it stands for."""

SCOPE = "onnxq_scope"
"""Key of a node's meta: path of the module that it calls or that calls it; "" is the model."""

_DROPOUTS: dict[Any, Any] = {
    aten.dropout.default: nn.Dropout,
    aten.feature_dropout.default: {3: nn.Dropout1d, 4: nn.Dropout2d, 5: nn.Dropout3d},
    aten.alpha_dropout.default: nn.AlphaDropout,
    aten.feature_alpha_dropout.default: nn.FeatureAlphaDropout,
}
_PARAMETRIZED = nn.utils.parametrize.ParametrizationList


def training_graph(model: nn.Module, program: Program) -> TrainingGraph:
    """The graph of the program on the model's own modules, parameters and buffers.

    The model's layers become part of the result, in its mode, without hooks: the program has them.
    """
    return _Building(model, program).run()


class _Building:
    """One walk along a program."""

    def __init__(self, model: nn.Module, program: Program) -> None:
        self._model, self._program = model, program
        self._graph = fx.Graph()
        self._calls = LeafCalls(model, program.exported)
        signature = program.exported.graph_signature
        self._sources = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self._values: dict[fx.Node, Any] = {}
        self._named = {node.name: node for node in program.exported.graph.nodes}
        self._attributes: dict[str, fx.Node] = {}
        self._parametrized: dict[tuple[str, str], fx.Node] = {}
        self._called: set[nn.Module | None] = set()
        self._dynamic: set[fx.Node | None] = set()
        self._inside = {name: call for call in program.functions for name in call.inside}
        self._applied: dict[int, Any] = {}  # call of a function -> what it returned

    def run(self) -> TrainingGraph:
        """Builds the graph, and the module of it."""
        exported = self._program.exported
        for module in self._model.modules():
            for name in HOOKS:  # what they do around forward is in the program
                getattr(module, name).clear()
        self._enter(exported)
        self._update(None)
        for node in exported.graph.nodes:
            if node.op == "call_function":
                self._step(node)
                self._update(node.name)
        self._leave(exported)
        made = TrainingGraph(self._model, self._graph, type(self._model).__name__)
        made.graph.eliminate_dead_code()
        made.graph.lint()
        made.recompile()
        return made.train(self._model.training)

    # --- inputs and outputs

    def _enter(self, exported: ExportedProgram) -> None:
        head = call_form.entry(self._graph, self._model, self._program.bound)
        signature = exported.graph_signature
        placeholders = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
        tensors = list(head.tensors.items())
        names = dict(zip(signature.user_inputs, self._program.bound.tensors, strict=True))
        for name, tensor in names.items():
            node = head.tensors[tensor]
            node.meta |= {PROGRAM_NODES: (str(name),), "val": placeholders[str(name)].meta["val"]}
            node.meta[SCOPE] = ""
            self._values[placeholders[str(name)]] = node
            self._dynamic.add(placeholders[str(name)])
        in_order = [head.tensors[tensor] for tensor in names.values()]
        self._module("shape_guard", call_form.guard_of(exported), in_order)
        if head.constants:
            self._module(
                "constant_guard", call_form.ConstantGuard(head.constants), [*head.checked.values()]
            )
        self._device = self._graph.call_function(getattr, (tensors[0][1], "device"))

    def _leave(self, exported: ExportedProgram) -> None:
        (output,) = [node for node in exported.graph.nodes if node.op == "output"]
        results = [self._read(node) for node in output.args[0]]
        outputs = self._program.outputs
        if call_form.is_plain(outputs):
            left = iter(results)
            made = replaced(outputs, lambda _, x: next(left) if isinstance(x, torch.Tensor) else x)
            self._graph.output(made)
            return
        self._graph.output(self._module("output_form", call_form.OutputForm(outputs), results))

    def _module(self, name: str, module: nn.Module, args: list[Any]) -> fx.Node:
        """A call of a new module, at the root of the model."""
        return self._graph.call_module(self._add(name, module), tuple(args))

    def _add(self, name: str, part: nn.Module | torch.Tensor) -> str:
        """The name under which the model has a module now, or a buffer that is not saved."""
        while hasattr(self._model, name):
            name += "_"
        if isinstance(part, nn.Module):
            self._model.add_module(name, part.train(self._model.training))
        else:
            self._model.register_buffer(name, part, persistent=False)
        return name

    # --- values

    def _read(self, argument: Any) -> Any:
        """Node that stands for one of the program now, or anything else as it is."""
        return fx.node.map_arg(argument, self._value)

    def _value(self, node: fx.Node) -> Any:
        if node not in self._values and node.op == "placeholder":
            self._values[node] = self._attribute(node)
        elif node not in self._values and node.op == "get_attr":
            self._values[node] = self._body(node)
        return self._values[node]

    def _body(self, node: fx.Node) -> fx.Node:
        """A branch of torch.cond, or the body of another operator of graphs: it stays in float."""
        body = getattr(self._program.exported.graph_module, str(node.target))
        made = self._graph.get_attr(self._add(str(node.target), picklable(body)))
        made.meta |= {PROGRAM_NODES: (), SCOPE: ""}
        return made

    def _attribute(self, node: fx.Node) -> fx.Node:
        """A parameter, buffer or constant of the model."""
        path = self._sources.get(node.name)
        if path is None or not _has(self._model, path):
            path = self._constant(node)
        if path not in self._attributes:
            made = self._graph.get_attr(path)
            made.meta |= {PROGRAM_NODES: (node.name,), "val": node.meta["val"], SCOPE: ""}
            self._attributes[path] = made
        return self._attributes[path]

    def _constant(self, node: fx.Node) -> str:
        """A tensor that forward made of numbers: a buffer that is not saved."""
        exported = self._program.exported
        signature = exported.graph_signature
        target = signature.inputs_to_lifted_tensor_constants.get(node.name)
        target = target or self._sources[node.name]
        return self._add(f"constant_{node.name}", exported.constants[target].detach().clone())

    def _set(self, node: fx.Node, made: Any) -> None:
        self._values[node] = made
        if isinstance(made, fx.Node):
            made.meta.setdefault(PROGRAM_NODES, (node.name,))
            made.meta.setdefault(
                SCOPE, str(made.target) if made.op == "call_module" else scope(node)
            )
            if "val" in node.meta:
                made.meta.setdefault("val", node.meta["val"])

    # --- one operator

    def _step(self, node: fx.Node) -> None:
        target = str(node.target)
        if any(source in self._dynamic for source in node.all_input_nodes):
            self._dynamic.add(node)
        if target == "aten._assert_tensor_metadata.default":
            return  # a dtype that autocast may change
        if node.name in self._inside:
            self._apply(node, self._inside[node.name])
            return
        if node.target is operator.getitem and self._unpacked(node):
            return
        if self._is_of_parametrization(node):
            return
        if node.target is RECURRENCE:
            self._recurrent(node)
            return
        self._set(node, self._computed(node))

    def _computed(self, node: fx.Node) -> fx.Node:
        """The node that computes what an operator does, without writing in place."""
        path = self._calls.path(node)
        if path is not None and not self._is_called(path):
            self._called.add(self._calls.module(path))
            x = arguments(node)["indices"] if node.target is aten.embedding.default else None
            return self._graph.call_module(path, (self._read(x or node.args[0]),))
        linear = linear_call(node)
        if linear is not None and self._has_static_weight(linear):
            return self._given(node, linear)
        if node.target in _DROPOUTS:
            return self._dropout(node)
        return self._function(node)

    def _is_called(self, path: str) -> bool:
        """Whether a layer with a weight is called already: it is quantized for one call."""
        module = self._calls.module(path)
        return not path or (module in self._called and isinstance(module, WEIGHTED))

    def _has_static_weight(self, linear: LinearCall) -> bool:
        """Whether an input is multiplied by what depends on none."""
        return linear.x in self._dynamic and self._dynamic.isdisjoint([linear.weight, linear.bias])

    def _given(self, node: fx.Node, linear: LinearCall) -> fx.Node:
        """A call of a layer with a weight that is not its own."""
        weight = self._read(linear.weight)
        if linear.is_transposed:
            weight = self._graph.call_function(aten.t.default, (weight,))
            # no result of the program: names lead to the call alone
            weight.meta |= {PROGRAM_NODES: (), SCOPE: scope(node)}
        wrapper = ParametrizedLayer(linear.layer())
        args = [self._read(linear.x), weight]
        args += [] if linear.bias is None else [self._read(linear.bias)]
        return self._module(node.name, wrapper, args)

    def _function(self, node: fx.Node, target: Any = None) -> fx.Node:
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        args = tuple(self._device if isinstance(x, torch.device) else x for x in args)
        kwargs = {k: self._device if isinstance(x, torch.device) else x for k, x in kwargs.items()}
        name = node.name
        return self._graph.create_node("call_function", target or node.target, args, kwargs, name)

    def _unpacked(self, node: fx.Node) -> bool:
        """Whether a node takes a result out of several that have nodes of their own."""
        source: Any = node.args[0]
        results = self._values.get(source)
        if not isinstance(results, list | tuple):
            return False
        position: Any = node.args[1]
        part = results[position]
        part.meta[PROGRAM_NODES] = (*part.meta.get(PROGRAM_NODES, ()), node.name)
        self._values[node] = part
        return True

    def _is_of_parametrization(self, node: fx.Node) -> bool:
        """Calls a parametrization once for each of its uses, in place of its operators."""
        inside = [
            (path, key)
            for path, key in zip(scopes(node), node.meta.get("nn_module_stack") or {}, strict=True)
            if isinstance(self._calls.module(path), _PARAMETRIZED)
        ]
        if not inside:
            return False
        if inside[0] not in self._parametrized:
            call = self._graph.call_module(inside[0][0], ())
            self._parametrized[inside[0]] = call
            self._set(node, call)
            call.meta[PROGRAM_NODES] = ()
        call = self._parametrized[inside[0]]
        call.meta[PROGRAM_NODES] += (node.name,)
        call.meta["val"] = node.meta.get("val")
        self._values[node] = call  # the last of them is what the layer reads
        return True

    def _dropout(self, node: fx.Node) -> fx.Node:
        """A module that obeys train and eval, for a function that was given self.training."""
        x, p, train = node.args
        if train:  # dropout that is always on
            return self._function(node)
        kind: Any = _DROPOUTS[node.target]
        if isinstance(kind, dict):
            kind = kind.get(node.meta["val"].ndim, nn.Dropout)
        return self._module(node.name, kind(float(p)), [self._read(x)])  # type: ignore[arg-type]  # a number

    # --- buffers

    def _update(self, behind: str | None) -> None:
        """Calls of what train mode writes into buffers behind a node."""
        for update in self._program.updates:
            if update.behind == behind and all(map(self._is_read, update.reads)):
                reads = [self._source(name) for name in update.reads]
                self._module("buffer_update", Updating(update.steps), reads)

    def _is_read(self, name: str) -> bool:
        node = self._named.get(name)
        return (
            _has(self._model, name)
            or (node is not None and node.op == "placeholder")
            or (node in self._values)
        )

    def _source(self, name: str) -> Any:
        """Value of a node of the program, or of a path of the model."""
        if name in self._named:
            return self._read(self._named[name])
        if name not in self._attributes:
            self._attributes[name] = self._graph.get_attr(name)
        return self._attributes[name]

    # --- functions with a backward of their own

    def _apply(self, node: fx.Node, call: FunctionCall) -> None:
        """Lets a result of a function's call come from the function; what lies inside is none."""
        if node.name not in call.results:
            return
        if id(call) not in self._applied:
            function = AppliedFunction(call.function, call.arguments)
            tensors = [self._read(self._named[name]) for name in call.tensors]
            self._applied[id(call)] = self._module(call.function.__name__, function, tensors)
        made = self._applied[id(call)]
        if not call.is_single:
            position = call.results[node.name]
            made = self._graph.call_function(operator.getitem, (made, position))
        self._set(node, made)

    # --- layers of several results

    def _recurrent(self, node: fx.Node) -> None:
        path = scope(node)
        module = self._calls.module(path)
        if not path or not isinstance(module, nn.RNNBase):
            self._set(node, self._function(node, run_recurrence))  # an operator has no gradient
            return
        call, *results = layer_call(node, module, self._read, self._graph)
        self._set(node, call)
        for made in (*call.users, *results):
            made.meta |= {PROGRAM_NODES: (node.name,), SCOPE: path}
        for made, value in zip(results, node.meta["val"], strict=False):
            made.meta["val"] = value
        self._values[node] = results


def _has(model: nn.Module, path: str) -> bool:
    try:
        operator.attrgetter(path)(model)
    except AttributeError:
        return False
    return True


# --- Calls of LSTM, GRU and RNN layers; what is padded stays out of training, as in forward.

RECURRENCE = torch.ops.onnxq.recurrence.default
_ZEROS = torch.ops.aten.zeros.default


def layer_call(
    node: fx.Node, layer: nn.RNNBase, read: Callable[[Any], Any], graph: fx.Graph
) -> list[fx.Node]:
    """The call of a layer that a node of the program stands for, and its y, h and c."""
    path = scope(node)
    x, lengths, states, *_ = cast("tuple[Any, ...]", node.args)
    args = [read(x)]
    if lengths is not None:
        args = [graph.call_function(packed, (read(x), read(lengths)))]
    if not all(s.target is _ZEROS and scope(s) == path for s in states):
        read_states = [read(state) for state in states]
        args.append(tuple(read_states) if isinstance(layer, nn.LSTM) else read_states[0])
    call = graph.call_module(path, tuple(args))
    y, state = (graph.call_function(operator.getitem, (call, i)) for i in (0, 1))
    if lengths is not None:
        y = graph.call_function(padded, (y, read(x)))
    if not isinstance(layer, nn.LSTM):
        return [call, y, state, state]
    return [call, y, *(graph.call_function(operator.getitem, (state, i)) for i in (0, 1))]


def packed(x: Tensor, lengths: Tensor) -> PackedSequence:
    """Sequences (T, N, F) up to their lengths (N,)."""
    return pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)


def padded(sequence: PackedSequence, x: Tensor) -> Tensor:
    """The sequences as long as x (T, N, F), 0 behind the end of each."""
    return pad_packed_sequence(sequence, total_length=x.shape[0])[0]
