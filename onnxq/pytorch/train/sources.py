"""Which FakeQuantize made each layer's input: found in the first forward pass of a prepared model.

An int32 bias is stored at x_scale * w_scale, so a layer has to know the scale of its input. The
first forward pass of the model is watched: each tensor that a FakeQuantize returns is noted, what
only moves values (max pooling, reshape, transpose, indexing, relu, cat of one source) hands the
note on; a layer behind a function that averages or clamps rounds its input (see same_scale).
Each layer with weights keeps the FakeQuantize of its input as `input_fake_quant`. Once
every layer has one there is no trace of this, and no cost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.weak import WeakIdKeyDictionary

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch.modules.places import has_pre_hook
from onnxq.pytorch.modules.stubs import DeQuantStub
from onnxq.pytorch.modules.transposed import WEIGHTED
from onnxq.pytorch.nn.intrinsic import FusedModule
from onnxq.pytorch.nn.qat.linear import GroupwiseLinear
from onnxq.pytorch.nn.quantized.observed import bind_input
from onnxq.pytorch.numerics.exact_buffers import never_compiled
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.agreeing_sums import keep_sums, owner
from onnxq.pytorch.train.same_scale import SAME_SCALE_AS_INPUT, Between, averaged, round_input
from onnxq.qconfig import QConfig
from onnxq.qdq.sum_scales import ADD, Sum

_MOVEMENT = """
    relu relu_ dropout dropout1d dropout2d dropout3d dropout_ max_pool1d max_pool2d max_pool3d
    _max_pool1d _max_pool2d _max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    _adaptive_max_pool1d _adaptive_max_pool2d _adaptive_max_pool3d
    view view_as reshape reshape_as flatten unflatten ravel squeeze unsqueeze permute transpose t
    __get__ contiguous clone detach to float __getitem__ __setitem__ select narrow chunk split
    split_with_sizes tensor_split unbind index_select gather take_along_dim expand expand_as repeat
    repeat_interleave tile flip roll movedim swapaxes swapdims pixel_shuffle pixel_unshuffle
    channel_shuffle cat concat concatenate stack hstack vstack masked_select amax amin
    requires_grad_ unfold
"""
MOVEMENT = frozenset(_MOVEMENT.split())
"""Functions each value of whose result is one of the inputs', or 0, which all levels include."""
_ADDING = frozenset(("add", "add_", "__add__", "__iadd__", "__radd__"))

LAYERS = (*WEIGHTED, FusedModule)


def _moves(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the function only moves values."""
    if name == "interpolate":
        mode = kwargs.get("mode", args[3] if len(args) > 3 else "nearest")
        return str(mode).startswith("nearest")
    if name == "pad":
        constant = kwargs.get("mode", args[2] if len(args) > 2 else "constant") == "constant"
        value = kwargs.get("value", args[3] if len(args) > 3 else None)
        return not (constant and value)
    return name in MOVEMENT


@dataclass(frozen=True)
class Lost:
    """A tensor that no FakeQuantize made."""

    by: str


@dataclass(frozen=True)
class Added(Lost):
    """The sum of two tensors of integers, before it is rounded."""

    operands: tuple[FakeQuantize, FakeQuantize]


Source = FakeQuantize | Between | Lost


class Tracker(TorchFunctionMode):
    """Notes where tensors come from, while it is entered."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        super().__init__()
        self.names = names
        self.sources: Any = WeakIdKeyDictionary()  # Tensor -> Source
        self.found: dict[nn.Module, Source] = {}
        self.sums: list[Sum] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        """Starts to watch."""
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after),
        ]
        super().__enter__()  # type: ignore[no-untyped-call]  # torch's
        return self

    def __exit__(self, *exception: object) -> None:
        """Stops."""
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]  # torch's

    @never_compiled
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function and notes what made its results."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()]
        if not read:
            return result
        name = str(getattr(func, "__name__", func))
        where = resolve_name(func) or name
        moves = _moves(name, args, kwargs)
        made = self._moved(where, read) if moves or name in SAME_SCALE_AS_INPUT else Lost(where)
        if not moves and isinstance(made, FakeQuantize):
            made = Between(made, averaged(name, read[0], result))
        if name in _ADDING and "alpha" not in kwargs:
            made = self._added(where, args)
        # __setitem__ returns None, and changes its first argument
        for tensor in tensors_in(args[0] if name == "__setitem__" else result):
            if made is not None and tensor.is_floating_point():
                self.sources[tensor] = made
        return result

    def _moved(self, where: str, read: list[Tensor]) -> Source | None:
        sources = [self.sources.get(tensor) for tensor in read]
        same = all(source == sources[0] for source in sources)
        return sources[0] if same else Lost(f"{where} of tensors with different scales")

    def _added(self, where: str, args: tuple[Any, ...]) -> Lost:
        sources = [self.sources.get(x) if isinstance(x, Tensor) else None for x in args]
        first, second, *_ = (*sources, None)
        if isinstance(first, FakeQuantize) and isinstance(second, FakeQuantize):
            return Added(where, (first, second))
        return Lost(where)

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        x = next(tensors_in(args), None)
        if module not in self.names or x is None:
            return
        source: Source = self.sources.get(x) or Lost("")
        if not reads_integers(module):
            has_qconfig = isinstance(getattr(module, "qconfig", None), QConfig)
            if has_qconfig and isinstance(module, LAYERS) and isinstance(source, FakeQuantize):
                bind_input(module, source)  # a user's from_observed may quantize it
            return
        name = self.names[module]
        known = self.found.setdefault(module, source)
        if known == source:
            return
        raise ModelError(
            f"'{name}' ({type(module).__name__}) is called more than once, on inputs of different "
            f"scales (from {self.describe(known)}, and from {self.describe(source)}); its int32 "
            "bias, at x_scale * w_scale, can have one. Use a module of its own for each call."
        )

    def _after(self, module: nn.Module, args: object, result: Any) -> Any:
        if isinstance(module, FakeQuantize):
            self._note_sum(module, args)
            for tensor in tensors_in(result):
                self.sources[tensor] = module
        if not isinstance(module, DeQuantStub):
            return result
        result = result.view_as(result)  # its input, which it returns, stays quantized
        self.sources[result] = Lost("a DeQuantStub")
        return result

    def _note_sum(self, rounding: FakeQuantize, args: object) -> None:
        x = next(tensors_in(args), None)
        source = None if x is None else self.sources.get(x)
        if not isinstance(source, Added) or rounding not in self.names:
            return
        name = self.names[rounding]
        operands = tuple(self.names.get(fake) for fake in source.operands)
        if None not in operands:
            self.sums.append(Sum(owner(name), ADD, "", operands, (name,)))

    def describe(self, source: Source) -> str:
        """Words for what made a tensor."""
        if isinstance(source, Lost):
            return source.by or "an input of the model or a constant"
        fake = source.fake if isinstance(source, Between) else source
        name = self.names.get(fake, "?")
        return f"'{name.removesuffix('.activation_post_process')}'"


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def reads_integers(module: nn.Module) -> bool:
    """Whether the module is to run on integers, with a bias at x_scale * w_scale."""
    if isinstance(module, nn.Embedding | GroupwiseLinear):
        return False
    observed = isinstance(getattr(module, "activation_post_process", None), FakeQuantize)
    return hasattr(module, "weight_fake_quant") or (observed and isinstance(module, LAYERS))


class Watch:
    """The hooks of a prepared model that watch its first forward pass and then vanish.

    They stay while there are layers that no pass has reached. Copied and pickled with the model.
    """

    def __init__(self, root: nn.Module) -> None:
        self.tracker: Tracker | None = None
        self._handles = [
            root.register_forward_pre_hook(self.start, prepend=True),
            root.register_forward_hook(self.stop, always_call=True),
        ]

    @never_compiled
    def start(self, root: nn.Module, args: object) -> None:  # noqa: ARG002  # a hook's arguments
        """Before a pass, which may be of a compiled model."""
        if torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export():
            raise UnsupportedError(
                "this prepared model has seen no data yet, so that the scale of its biases is not "
                "known. Run one batch through it, or train it, and convert it before it is "
                "exported."
            )
        self.tracker = Tracker({module: name for name, module in root.named_modules()})
        self.tracker.__enter__()

    @never_compiled
    def stop(self, root: nn.Module, args: object, result: object) -> None:  # noqa: ARG002  # a hook's signature
        """After a pass, or its failure, where the result is None."""
        tracker, self.tracker = self.tracker, None
        if tracker is None:
            return
        tracker.__exit__(None, None, None)
        if result is None:
            return
        bind(tracker)
        keep_sums(root, tracker.sums)
        if all(m.__dict__.get("input_fake_quant") for m in root.modules() if reads_integers(m)):
            for handle in self._handles:
                handle.remove()


def watch_first_pass(root: nn.Module) -> None:
    """Lets the next forward pass of the model find the source of each layer's input."""
    Watch(root)


def is_watching(hook: object) -> bool:
    """Whether a hook is one that watches for a first forward pass."""
    return isinstance(getattr(hook, "__self__", None), Watch)


def bind(tracker: Tracker) -> None:
    """Gives each layer what made its input."""
    for module, source in tracker.found.items():
        if isinstance(source, Lost):
            raise ModelError(_lost(tracker, module, source))
        if not isinstance(source, Between):
            bind_input(module, source)
            continue
        bind_input(module, source.fake)
        module.__dict__["input_averaged"] = source.averaged
        if not has_pre_hook(module, round_input):
            module.register_forward_pre_hook(round_input)


def _lost(tracker: Tracker, module: nn.Module, source: Lost) -> str:
    name = tracker.names[module]
    return (
        f"'{name}' ({type(module).__name__}): its input, from {tracker.describe(source)}, is not "
        "fake-quantized, so that it could not run in integers. Put a QuantStub before it; or use "
        "FloatFunctional for add, mul and cat, which fake-quantizes its result; or set its qconfig "
        "to None to leave it in float; or let onnxq insert all this: "
        "prepare_qat(model, inputs=...)."
    )
