"""Dynamic quantization beside torch's, and the two functions on scripted models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check, Difference
from scripts._documents.compare import array_of, holds, same, same_quantized
from scripts._documents.namespaces import ours, theirs
from scripts._documents.nets import off_the_tie

DYNAMIC = "dynamic"

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], type[nn.Module]]] = {
    "Linear": (lambda: nn.Linear(16, 8), (4, 16), nn.Linear),
    "LSTM": (lambda: nn.LSTM(8, 12), (5, 2, 8), nn.LSTM),
    "LSTM, 2 layers, bidirectional": (
        lambda: nn.LSTM(8, 6, 2, bidirectional=True),
        (5, 2, 8),
        nn.LSTM,
    ),
    "GRU": (lambda: nn.GRU(8, 12), (5, 2, 8), nn.GRU),
    "LSTMCell": (lambda: nn.LSTMCell(8, 12), (2, 8), nn.LSTMCell),
    "GRUCell": (lambda: nn.GRUCell(8, 12), (2, 8), nn.GRUCell),
    "RNNCell": (lambda: nn.RNNCell(8, 12), (2, 8), nn.RNNCell),
}


def first(result: Any) -> Tensor:
    """The first tensor of a result."""
    while not isinstance(result, Tensor):
        result = result[0]
    return result


def dynamic(name: str, dtype: torch.dtype) -> None:
    """quantize_dynamic replaces the layer; it is off from float at most twice as far."""
    make, shape, kind = LAYERS[name]
    torch.manual_seed(2)
    layer = make()
    x = torch.randn(*shape)
    wanted = array_of(first(layer(x)))
    errors = []
    for namespace in (ours, theirs):
        made = namespace.quantize_dynamic(nn.Sequential(layer), {kind}, dtype=dtype)
        holds("dynamic" in type(made[0]).__module__, f"{namespace.__name__}: {type(made[0])}")
        same(type(made[0]).__name__, kind.__name__)
        errors.append(float(abs(array_of(first(made(x))) - wanted).max()))
    floor = float(abs(wanted).max()) * (2.0**-11 if dtype == torch.float16 else 0.004)
    holds(errors[0] <= max(2 * errors[1], floor), f"{errors[0]:.3g} apart, torch {errors[1]:.3g}")


def dynamic_weights() -> None:
    """The weights of a dynamic Linear are torch's integers."""
    torch.manual_seed(2)
    layer = nn.Linear(16, 8)
    off_the_tie(layer, "per tensor")
    mine = ours.quantize_dynamic(nn.Sequential(layer), {nn.Linear})[0].weight()
    torchs = theirs.quantize_dynamic(nn.Sequential(layer), {nn.Linear})[0].weight()
    same_quantized(mine, torchs)


SPECS: dict[str, Callable[[Any], Any]] = {
    "None": lambda _: None,
    "{nn.Linear}": lambda _: {nn.Linear},
    "{'0'}": lambda _: {"0"},
    "{nn.Linear: qconfig}": lambda n: {nn.Linear: n.default_dynamic_qconfig},
    "{'2': qconfig}": lambda n: {"2": n.default_dynamic_qconfig},
}


def specified(name: str) -> None:
    """qconfig_spec says which layers: the same ones as torch's."""
    kinds = []
    for namespace in (ours, theirs):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        made = namespace.quantize_dynamic(net, SPECS[name](namespace))
        kinds.append([type(part) is nn.Linear for part in made])
    same(kinds[0], kinds[1], "whether float")


def jit(verb: str) -> None:
    """The scripted model comes back quantized, and can be called."""
    trace: Any = torch.jit.trace
    script = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4))
    x = torch.randn(8, 4)
    if verb == "quantize_jit":
        data = [(x, torch.zeros(8))]
        made = ours.quantize_jit(script, {"": ours.default_qconfig}, ours.default_eval_fn, [data])
    else:
        made = ours.quantize_dynamic_jit(script, {"": ours.default_dynamic_qconfig})
    wanted = array_of(script(x))
    apart = float(abs(array_of(made(x)) - wanted).max())
    holds(0 < apart < 0.05 * float(abs(wanted).max()), f"{apart:.3g} apart")


def mixed() -> None:
    """Static and dynamic quantization for different parts of one model."""
    net: Any = nn.Sequential(nn.Linear(4, 4), ours.QuantWrapper(nn.Linear(4, 4))).eval()
    net[1].qconfig = ours.get_default_qconfig("fbgemm")
    prepared = ours.prepare(net)
    prepared(torch.randn(8, 4))
    made = ours.convert(prepared)
    made = ours.quantize_dynamic(made, {"0": ours.default_dynamic_qconfig})
    holds("dynamic" in type(made[0]).__module__, f"the first part is {type(made[0])}")
    holds("dynamic" not in type(made[1].module).__module__, "the second part is dynamic, too")
    if not torch.isfinite(made(torch.randn(8, 4))).all():
        raise Difference("results are not finite")


def checks() -> Iterator[Check]:
    """All checks of dynamic quantization."""
    for name in LAYERS:
        for dtype in (torch.qint8, torch.float16):
            words = f"{name}, {str(dtype).removeprefix('torch.')}"
            yield Check(COVERAGE, DYNAMIC, words, partial(dynamic, name, dtype))
    for name in SPECS:
        yield Check(GUIDE, DYNAMIC, f"qconfig_spec={name}", partial(specified, name))
    yield Check(GUIDE, DYNAMIC, "weights of Linear", dynamic_weights)
    yield Check(DESIGN, DYNAMIC, "static and dynamic parts in one model", mixed)
    for verb in ("quantize_jit", "quantize_dynamic_jit"):
        yield Check(COVERAGE, DYNAMIC, f"{verb}, result", partial(jit, verb))
