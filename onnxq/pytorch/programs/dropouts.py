"""Rates of train mode, where eval mode does nothing, so that a program of eval mode can train.

functional.dropout(x, p if self.training else 0.0)   p, from one run in train mode
nn.MultiheadAttention                                its p, behind its softmax
DropPath()(x), which is x in eval mode               the module, marked while it is exported
"""

import contextlib
import hashlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute, copied, flatten
from onnxq.pytorch.arguments.nesting import Path, leaves
from onnxq.pytorch.modules.adapter import DROPOUTS
from onnxq.pytorch.modules.places import following, hooked
from onnxq.pytorch.programs.leaf_calls import arguments, scope

_SEED = 0
_MARK = 0.5  # rate of the dropout that marks a module; eval mode does not read it


@dataclass(frozen=True, slots=True)
class DropCall:
    """One call of a dropout function in train mode."""

    p: float
    training: bool


@dataclass(frozen=True, slots=True)
class Dropouts:
    """Calls of dropout functions in one run of forward in train mode.

    Attributes:
        calls: path of the module whose forward calls -> its calls in order.
        attention: the same of the dropout inside of scaled_dot_product_attention.
        results: tensors that forward returned.
        paths: where they stand in what it returned.
        buffers: values after the run of those that it changed, by name.
        drawn: what the generators of random numbers are at after the run.
        failure: why train mode could not run; empty where it did.
    """

    calls: Mapping[str, tuple[DropCall, ...]] = field(default_factory=dict)
    attention: Mapping[str, tuple[DropCall, ...]] = field(default_factory=dict)
    results: tuple[torch.Tensor, ...] = ()
    paths: tuple[Path, ...] = ()
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    drawn: str = ""
    failure: str = ""


def train_dropouts(model: nn.Module, bound: BoundInputs) -> Dropouts:
    """Dropouts of one run in train mode; of a copy, so that no statistic of the model changes."""
    trained = copied(model).train()
    recorder = _Recorder()
    failure, outputs, drawn = "", None, ""
    try:
        with following(trained, recorder.running), recorder, LowestDraws(), same_seed():
            outputs = compute(trained, bound)
            drawn = _generators()
    except FORWARD_RAISES as error:
        failure = " ".join(str(error).split())[:200]
    calls, attention = (
        {path: tuple(found) for path, found in kind.items()}
        for kind in (recorder.calls, recorder.attention)
    )
    if failure:
        return Dropouts(calls, attention, failure=failure)
    before = dict(model.named_buffers())
    after = {name: x for name, x in trained.named_buffers() if name in before}
    changed = {name: x for name, x in after.items() if not torch.equal(x, before[name])}
    results = tuple(flatten(outputs))
    return Dropouts(calls, attention, results, tensor_paths(outputs), changed, drawn)


def tensor_paths(outputs: object) -> tuple[Path, ...]:
    """Where tensors stand in a module's result."""
    return tuple(path for path, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor))


class LowestDraws(TorchFunctionMode):
    """A context in which uniform random numbers are the lowest, 0, and none is drawn for them.

    What is left out with any probability is left out then: `torch.rand(()) < p`, for p > 0.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function, or gives zeros in its place."""
        given = dict(kwargs or {})
        if func in _ZEROS:
            given.pop("generator", None)
            return _ZEROS[func](*args, **given)
        return func(*args, **given)


_ZEROS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.rand: torch.zeros,
    torch.rand_like: torch.zeros_like,
}


def seeded_run(module: nn.Module, bound: BoundInputs) -> tuple[tuple[torch.Tensor, ...], str]:
    """Tensors of one run on random numbers of one seed, and `Dropouts.drawn` of it."""
    with same_seed():
        return tuple(flatten(compute(module, bound))), _generators()


def _generators() -> str:
    """Digest of the states of the generators that a forward draws from."""
    found = hashlib.sha256(torch.default_generator.get_state().numpy().tobytes())
    found.update(repr(random.getstate()).encode())
    for part in np.random.get_state():  # noqa: NPY002  # a user's forward may draw from it
        found.update(np.asarray(part).tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def same_seed() -> Iterator[None]:
    """A context of random numbers of one seed; outside they go on as before."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # a user's
    on_gpus = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if on_gpus else ()):
            torch.default_generator.manual_seed(_SEED)
            if on_gpus:  # else a seed would be set for the time when they are
                torch.cuda.manual_seed_all(_SEED)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002  # a user's


class _Recorder(TorchFunctionMode):
    """Notes calls of dropout functions by the module that is running."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[DropCall]] = {}
        self.attention: dict[str, list[DropCall]] = {}
        self.running = [""]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Notes the call, and runs it."""
        given = kwargs or {}
        if func in _DROPPING:
            bound = {"p": 0.5, "training": True} | dict(zip(_NAMES, args, strict=False)) | given
            call = DropCall(float(bound["p"]), bool(bound.get("train", bound["training"])))
            self.calls.setdefault(self.running[-1], []).append(call)
        if func is functional.scaled_dot_product_attention:
            p = args[_DROPOUT_P] if len(args) > _DROPOUT_P else given.get("dropout_p", 0.0)
            self.attention.setdefault(self.running[-1], []).append(DropCall(float(p), bool(p)))
        return func(*args, **given)


_NAMES = ("input", "p", "training")
_DROPOUT_P = 4  # position in scaled_dot_product_attention(q, k, v, mask, dropout_p)
_DROPPING = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
}


aten = torch.ops.aten

_ATTENTION = (aten.scaled_dot_product_attention.default,)


def restore_rates(program: ExportedProgram, model: nn.Module, dropouts: Dropouts) -> None:
    """Puts what train mode drops into a program of eval mode, where it stays without effect.

    Calls are matched in order, module by module; where train mode makes another number of them,
    the program stays as it is.
    """
    # calls of a module are noted by the first of its paths
    first = {module: path for path, module in model.named_modules()}
    places = {path: first[m] for path, m in model.named_modules(remove_duplicate=False)}
    for targets, noted in ((DROPOUTS, dropouts.calls), (_ATTENTION, dropouts.attention)):
        found: dict[str, list[fx.Node]] = {}
        for node in program.graph.nodes:
            if node.target in targets:
                path = scope(node)
                found.setdefault(places.get(path, path), []).append(node)
        for path, nodes in found.items():
            calls = noted.get(path, ())
            if len(calls) == len(nodes):
                for node, call in zip(nodes, calls, strict=True):
                    _set_rate(node, call)
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention) and module.dropout:
            names = {name for name, known in places.items() if known == path}
            _drop_weights(program, names, module.dropout)
    program.graph.lint()


def _set_rate(node: fx.Node, call: DropCall) -> None:
    if node.target in _ATTENTION:
        rest = {name: x for name, x in arguments(node).items() if name != "dropout_p"}
        node.args = tuple(rest.pop(name) for name in ("query", "key", "value"))
        node.kwargs = {**rest, "dropout_p": call.p}
    elif call.training:
        node.update_arg(1, call.p)
    else:  # functional.dropout(x, p, training=False)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]  # a tensor
        node.graph.erase_node(node)


def _drop_weights(program: ExportedProgram, paths: Collection[str], p: float) -> None:
    """Lets the attention weights of a layer, which may have several paths, go through dropout."""
    for node in list(program.graph.nodes):
        if scope(node) not in paths:
            continue
        if node.target in _ATTENTION:
            _set_rate(node, DropCall(p, training=True))
        if node.target is aten.softmax.int:
            with program.graph.inserting_after(node):
                drop = program.graph.call_function(aten.dropout.default, (node, p, False))
            drop.meta = dict(node.meta)
            node.replace_all_uses_with(
                drop, delete_user_cb=lambda user, made=drop: user is not made
            )


@contextlib.contextmanager
def marked_identities(model: nn.Module, bound: BoundInputs) -> Iterator[None]:
    """While it lasts, modules that give their input back in eval mode call dropout instead.

    Stochastic depth and noise are such parts: without a call of some function, a program does not
    show that they are there. nn.Identity is none of them.
    """
    # a module may have a forward of its own beside its class's (Accelerate sets one)
    found = {module: vars(module).get("forward") for module in _identities(model, bound)}
    try:
        for module in found:
            module.forward = lambda x, *_, **__: functional.dropout(x, _MARK, training=False)
        yield
    finally:
        for module, own in found.items():
            del module.forward
            if own is not None:
                module.forward = own


def _identities(model: nn.Module, bound: BoundInputs) -> list[nn.Module]:
    others: set[nn.Module] = set()
    seen: set[nn.Module] = set()

    def note(module: nn.Module, args: tuple[Any, ...], result: object) -> None:
        same = bool(args) and result is args[0] and isinstance(result, torch.Tensor)
        (seen if same else others).add(module)

    watched = [module for module in list(model.modules())[1:] if _may_be_marked(module)]
    with hooked([module.register_forward_hook(note) for module in watched]):
        compute(model, bound)
    return [module for module in model.modules() if module in seen - others]


def _may_be_marked(module: nn.Module) -> bool:
    """Whether a module has nothing but a forward of its own."""
    bare = not any(True for _ in module.children()) and not module.state_dict(keep_vars=True)
    return bare and not type(module).__module__.startswith("torch.nn.")
