"""Calls of layers, found again among the operators of a program.

    aten.conv2d(x, W, b, 2, 1)      the call of the Conv2d whose parameters are W and b
    aten.relu(x), alone in a ReLU   the call of that ReLU

A layer is found by the parameters that the operator reads, or by the module that torch.export
notes, where the operator is all that the module does. A subclass that does more around the operator
(padding of its own, an activation) becomes the plain layer on the same tensors; the rest is in the
program.
"""

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from onnxq.pytorch.modules.adapter import DROPOUTS
from onnxq.pytorch.modules.transposed import CONVOLUTIONS, TRANSPOSED

aten = torch.ops.aten

_PARAMETERS: dict[Any, tuple[Any, tuple[str, ...]]] = {
    aten.linear.default: (nn.Linear, ()),
    aten.conv1d.default: (nn.Conv1d, ("stride", "padding", "dilation", "groups")),
    aten.conv2d.default: (nn.Conv2d, ("stride", "padding", "dilation", "groups")),
    aten.conv3d.default: (nn.Conv3d, ("stride", "padding", "dilation", "groups")),
    aten.conv1d.padding: (nn.Conv1d, ("stride", "padding", "dilation", "groups")),
    aten.conv2d.padding: (nn.Conv2d, ("stride", "padding", "dilation", "groups")),
    aten.conv3d.padding: (nn.Conv3d, ("stride", "padding", "dilation", "groups")),
    aten.conv_transpose1d.default: (nn.ConvTranspose1d, ()),
    aten.conv_transpose2d.input: (nn.ConvTranspose2d, ()),
    aten.conv_transpose3d.input: (nn.ConvTranspose3d, ()),
    aten.embedding.default: (nn.Embedding, ()),
    aten.layer_norm.default: (nn.LayerNorm, ("normalized_shape", "eps")),
    aten.group_norm.default: (nn.GroupNorm, ("num_groups", "eps")),
    aten.rms_norm.default: (nn.RMSNorm, ("normalized_shape", "eps")),
    aten.prelu.default: (nn.PReLU, ()),
    aten.batch_norm.default: (_BatchNorm, ("eps", "momentum")),
    aten.instance_norm.default: (_InstanceNorm, ("eps", "momentum")),
}
LAYERS = frozenset(_PARAMETERS)
"""Operators that are the whole of a layer."""
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_INSTANCE_NORMS = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
_INERT = (aten.sym_size.int, aten._assert_tensor_metadata.default)  # noqa: SLF001  # an operator


class LeafCalls:
    """Which nodes of a program are calls of layers."""

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        self._modules = dict(model.named_modules(remove_duplicate=False))
        signature = program.graph_signature
        sources = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        tensors = (model.named_parameters, model.named_buffers)
        known = {name for named in tensors for name, _ in named(remove_duplicate=False)}
        self._tensors: dict[str, tuple[str, torch.Tensor]] = {
            name: (path, operator.attrgetter(path)(model))
            for name, path in sources.items()
            if path in known
        }
        self._plain: dict[str, dict[str, Any]] = {}  # path -> what the layer was made to be
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        self._steps = Counter(stack_key(node) for node in nodes if node.target not in _INERT)

    def module(self, path: str) -> nn.Module | None:
        """The module of that path."""
        return self._modules.get(path)

    def path(self, node: fx.Node) -> str | None:
        """The layer that a node calls; None where it is none."""
        if node.target in _PARAMETERS:
            return self._by_parameters(node)
        return self._by_scope(node)

    # --- by the parameters that the operator reads

    def _by_parameters(self, node: fx.Node) -> str | None:
        kind, names = _PARAMETERS[node.target]
        bound = arguments(node)
        if kind is _BatchNorm or kind is _InstanceNorm:
            ranks = _BATCH_NORMS if kind is _BatchNorm else _INSTANCE_NORMS
            kind = ranks.get(bound["input"].meta["val"].ndim)
        if kind is None:
            return None
        wanted = {name: bound[name] for name in names}
        if wanted.get("momentum") == 0:  # None, which eval mode shows so
            del wanted["momentum"]
        for path in self._owners(node, bound):
            module = self._modules.get(path)
            if self._holds(module, bound) and self._becomes(path, module, kind, wanted, bound):
                return path
        return None

    def _owners(self, node: fx.Node, bound: Mapping[str, Any]) -> list[str]:
        """Paths of modules that may be the layer: the one that runs, those of the parameters."""
        found = [scope(node)]
        for name in ("weight", "running_mean"):
            argument = bound.get(name)
            if isinstance(argument, fx.Node) and argument.name in self._tensors:
                found.append(self._tensors[argument.name][0].rpartition(".")[0])
        return list(dict.fromkeys(found))

    def _holds(self, module: nn.Module | None, bound: Mapping[str, Any]) -> bool:
        """Whether the parameters and statistics of a module are those that the operator reads."""
        if module is None:
            return False
        for name in ("weight", "bias", "running_mean", "running_var"):
            if name not in bound and name not in module._parameters:  # noqa: SLF001  # not computed ones
                continue
            held = {**module._parameters, **module._buffers}.get(name)  # noqa: SLF001  # by name
            argument = bound.get(name)
            read = None
            if isinstance(argument, fx.Node):
                if argument.name not in self._tensors:
                    return False
                read = self._tensors[argument.name][1]
            if held is not read:
                return False
        return True

    def _becomes(
        self,
        path: str,
        module: Any,
        kind: type[nn.Module],
        wanted: dict[str, Any],
        bound: Mapping[str, Any],
    ) -> bool:
        """Makes a module the plain layer that the operator shows; False where it cannot be."""
        if not isinstance(module, kind) and not _is_norm(module, kind):
            return False
        if isinstance(module, TRANSPOSED) and not all(  # output_size changes them
            _same(getattr(module, name), bound[name]) for name in _TRANSPOSED
        ):
            return False
        if path in self._plain:
            return self._plain[path] == wanted
        self._plain[path] = wanted
        if type(module) is not kind:
            module.__class__ = kind
        if getattr(module, "padding_mode", "zeros") != "zeros":
            module.padding_mode = "zeros"  # a node of its own pads
        for name, value in wanted.items():
            if not _same(getattr(module, name, None), value):
                setattr(module, name, tuple(value) if isinstance(value, list) else value)
        return True

    # --- by the module that torch.export notes

    def _by_scope(self, node: fx.Node) -> str | None:
        """A module of torch.nn of which the node is all, with one tensor as argument.

        A module that drops in train mode may be anybody's.
        """
        path = scope(node)
        module = self._modules.get(path)
        if module is None or self._steps[stack_key(node)] != 1 or len(node.all_input_nodes) != 1:
            return None
        is_known = type(module).__module__.startswith("torch.nn.modules.")
        if _has_parts(module) or not (is_known or node.target in DROPOUTS):
            return None
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        if getattr(module, "inplace", False):
            module.inplace = False
        return path


def scope(node: fx.Node) -> str:
    """Path of the module in whose forward an operator was met; "" is the model."""
    entries = list((node.meta.get("nn_module_stack") or {}).values())
    return str(entries[-1][0]).partition("@")[0] if entries else ""


def scopes(node: fx.Node) -> list[str]:
    """Paths of the modules around an operator, outermost first."""
    entries = (node.meta.get("nn_module_stack") or {}).values()
    return [str(path).partition("@")[0] for path, _ in entries]


def stack_key(node: fx.Node) -> str:
    """Key that tells the calls of one module apart."""
    return str((list(node.meta.get("nn_module_stack") or {}) or [""])[-1])


def arguments(node: fx.Node) -> dict[str, Any]:
    """Arguments of an operator by name, defaults included."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001  # of an OpOverload
    given = dict(zip((argument.name for argument in schema), node.args, strict=False))
    defaults = {a.name: a.default_value for a in schema if a.has_default_value()}
    return {**defaults, **given, **node.kwargs}


def _is_norm(module: object, kind: type[nn.Module]) -> bool:
    """Whether a norm for any rank (SyncBatchNorm) computes what this one does."""
    batch = isinstance(module, _BatchNorm) and issubclass(kind, _BatchNorm)
    return batch or (isinstance(module, _InstanceNorm) and issubclass(kind, _InstanceNorm))


def _same(held: Any, value: Any) -> bool:
    if isinstance(value, tuple | list):
        return isinstance(held, tuple | list) and list(held) == list(value)
    if isinstance(held, tuple | list):
        return len({*held}) == 1 and held[0] == value
    return bool(held == value)


def _has_parts(module: nn.Module) -> bool:
    children = any(True for _ in module.children())
    return children or any(True for _ in module.parameters(recurse=False))


# --- Operators that multiply by a weight, as layers that are given it.
#
# aten.matmul(x, W)       Linear, with W^T
# aten.addmm(b, x, W)     Linear, with W^T and b
# aten.conv2d(x, W, b)    Conv2d with W and b


_CONVS: dict[Any, type[nn.Module]] = {
    target: kind for target, (kind, _) in _PARAMETERS.items() if kind in CONVOLUTIONS
}
_NUMBERS = ("stride", "padding", "output_padding", "dilation", "groups")
_MATRIX = 2  # rank


@dataclass(frozen=True, slots=True)
class LinearCall:
    """One operator with a weight."""

    x: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    is_transposed: bool
    node: fx.Node

    def layer(self) -> nn.Module:
        """The layer that computes it; its parameters are on no device."""
        shape = [int(size) for size in self.weight.meta["val"].shape]
        has_bias = self.bias is not None
        kind: Any = _CONVS.get(self.node.target)
        if kind is None:
            rows, columns = reversed(shape) if self.is_transposed else shape
            return nn.Linear(columns, rows, bias=has_bias, device="meta")
        bound = arguments(self.node)
        numbers = {name: bound[name] for name in _NUMBERS if name in bound}
        numbers = {k: tuple(v) if isinstance(v, list) else v for k, v in numbers.items()}
        channels = (shape[1] * bound["groups"], shape[0])
        if "output_padding" in bound:
            channels = (channels[1], channels[0])
        made: nn.Module = kind(*channels, tuple(shape[2:]), bias=has_bias, device="meta", **numbers)
        return made


def linear_call(node: fx.Node) -> LinearCall | None:
    """The linear layer that a node computes; None for other nodes."""
    args: Any = node.args
    if node.target is aten.linear.default or node.target in _CONVS:
        bound = arguments(node)
        return LinearCall(bound["input"], bound["weight"], bound.get("bias"), False, node)
    if node.target in (aten.matmul.default, aten.mm.default):
        x, weight = args
        is_matrix = weight.meta["val"].ndim == _MATRIX and x.meta["val"].ndim >= _MATRIX
        return LinearCall(x, weight, None, True, node) if is_matrix else None
    if node.target is aten.addmm.default and not node.kwargs:
        bias, x, weight = args
        columns = weight.meta["val"].shape[1]
        is_vector = tuple(bias.meta["val"].shape) == (columns,)
        return LinearCall(x, weight, bias, True, node) if is_vector else None
    return None
