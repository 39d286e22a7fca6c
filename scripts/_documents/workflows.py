"""Static quantization in eager mode, step by step beside torch's, and its helper functions.

Whole models are compared integer by integer; none averages integers, whose means lie on ties often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

import onnxq
from onnxq import targets
from scripts._documents.check import COVERAGE, GUIDE, Check
from scripts._documents.compare import ULP, close, holds, same, same_quantized, steps_apart
from scripts._documents.namespaces import ours, theirs
from scripts._documents.nets import FUSED, Net, images, static

STATIC, HELPERS = "static", "torch.quantization"


def static_result(backend: str, biases: object = False) -> None:
    """The same integers at the end, and the scales of every layer."""
    mine, torchs = (static(namespace, backend, biases) for namespace in (ours, theirs))
    for name in ("conv", "side", "fc", "total"):
        own, other = getattr(mine, name), getattr(torchs, name)
        close(own.scale, float(other.scale), 4 * ULP)
        same(int(own.zero_point), int(other.zero_point), f"zero point of {name}")
    steps_apart(mine(images(8)), torchs(images(8)), float(torchs.fc.scale))


def static_weights() -> None:
    """The weights that convert quantizes are torch's, integers and scales."""
    mine, torchs = static(ours), static(theirs)
    for name in ("conv", "side", "fc"):
        same_quantized(getattr(mine, name).weight(), getattr(torchs, name).weight())


def replaced() -> None:
    """Key operators become quantized ones, and the model stays an nn.Module."""
    mine, torchs = static(ours), static(theirs)
    holds(isinstance(mine, Net), f"a {type(mine).__name__}")
    for name in ("quant", "dequant", "conv", "side", "total", "fc"):
        same(type(getattr(mine, name)).__name__, type(getattr(torchs, name)).__name__, name)


def copies(verb: str) -> None:
    """Without inplace the float model stays as it is; with it, the model itself is changed."""
    for inplace in (False, True):
        net: Any = Net(ours).train(verb == "prepare_qat")
        net.qconfig = ours.get_default_qat_qconfig("fbgemm")
        if verb != "prepare_qat":
            net.qconfig = ours.get_default_qconfig("fbgemm")
        if verb == "convert":
            net = ours.prepare(net)
            net(images())
        made = getattr(ours, verb)(net, inplace=inplace)
        holds(
            (made is net) is inplace, f"inplace={inplace}: {'the same' if made is net else 'new'}"
        )


def observed() -> None:
    """Prepare gives layers an observer, which calibration fills."""
    net: Any = Net(ours).eval()
    net.qconfig = ours.get_default_qconfig("fbgemm")
    prepared = ours.prepare(net)
    before: dict[str, Any] = {}
    ours.get_observer_dict(prepared, before)
    net = Net(theirs).eval()
    net.qconfig = theirs.get_default_qconfig("fbgemm")
    torchs: dict[str, Any] = {}
    theirs_prepared = theirs.prepare(net)
    # torch hides the function behind another one of the module's name
    vars(import_module("torch.ao.quantization.quantize"))["_get_observer_dict"](
        theirs_prepared, torchs
    )
    missing = sorted(set(torchs) - set(before))
    holds(not missing, f"no observer at {missing}")


def selective() -> None:
    """Parts whose qconfig is None stay in float."""
    pair = []
    for namespace in (ours, theirs):
        torch.manual_seed(1)
        net: Any = nn.Sequential(namespace.QuantWrapper(nn.Linear(4, 4)), nn.Linear(4, 4)).eval()
        net.qconfig = namespace.get_default_qconfig("fbgemm")
        net[1].qconfig = None
        prepared = namespace.prepare(net)
        prepared(torch.randn(8, 4))
        pair.append(namespace.convert(prepared))
    for made in pair:
        same(type(made[1]), nn.Linear, "the second layer")
        holds(type(made[0].module) is not nn.Linear, "the first layer is float")


def stubs(name: str) -> None:
    """Stubs pass values as they are in a float model, and take a qconfig."""
    stub = getattr(ours, name)()
    x = torch.randn(4)
    holds(stub(x) is x, "another tensor came back")
    if name == "QuantStub":
        entry = ours.get_default_qconfig("fbgemm")
        holds(ours.QuantStub(entry).qconfig is entry, "no qconfig")


def wrapper() -> None:
    """QuantWrapper puts a QuantStub in front and a DeQuantStub behind."""
    inner = nn.Linear(4, 4)
    wrapped = ours.QuantWrapper(inner)
    same([name for name, _ in wrapped.named_children()], ["quant", "dequant", "module"])
    x = torch.randn(2, 4)
    close(wrapped(x), inner(x), 0.0)


# --- One call for all.


def one_call(verb: str) -> None:
    """Quantize and quantize_qat do what their steps do."""
    data = [(images(), torch.tensor([0, 1, 2, 3]))]
    results = []
    for namespace in (ours, theirs):
        net = Net(namespace)
        if verb == "quantize":
            net = namespace.fuse_modules(net.eval(), FUSED)
            net.qconfig = namespace.QConfig(
                namespace.default_observer, namespace.default_weight_observer
            )
            made = namespace.quantize(net, namespace.default_eval_fn, [data])
        else:
            net.train().qconfig = namespace.get_default_qat_qconfig("fbgemm")
            made = namespace.quantize_qat(net, namespace.default_eval_fn, [data])
        results.append((made, {n: type(m).__name__ for n, m in made.named_modules()}))
    for name in ("conv", "side", "fc", "quant", "dequant"):
        same(results[0][1][name], results[1][1][name], name)
    if verb == "quantize":
        scales = [float(results[i][0].fc.scale) for i in (0, 1)]
        steps_apart(results[0][0](images(8)), results[1][0](images(8)), scales[1])


def evaluated() -> None:
    """default_eval_fn runs the model on the inputs of each pair."""
    seen: list[Tensor] = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x

    data = [(torch.randn(2, 3), 0), (torch.randn(2, 3), 1)]
    ours.default_eval_fn(Watch(), data)
    holds(len(seen) == 2 and all(a is b for a, (b, _) in zip(seen, data, strict=True)), "not all")


def deploys() -> None:
    """A converted model becomes an ONNX model."""
    converted = static(ours)
    exported = onnxq.export(converted, images(2))
    kinds = {node.op_type for node in exported.graph}
    holds(kinds & {"QuantizeLinear", "QLinearConv"}, f"nodes {sorted(kinds)}")


# --- Helpers.


def helper_add_observer() -> None:
    """add_observer_ gives leaf modules with a qconfig an observer, in place."""
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    ours.propagate_qconfig_(net, {"": ours.default_qconfig})
    ours.add_observer_(net)
    holds(hasattr(net[0], "activation_post_process"), "no observer")


def helper_add_quant_dequant() -> None:
    """add_quant_dequant wraps the leaf modules that have a qconfig."""
    pair = []
    for namespace in (ours, theirs):
        net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)))
        net[0].qconfig = namespace.default_qconfig
        made = namespace.add_quant_dequant(net)
        pair.append([type(part).__name__ for part in made.modules()])
    same(sorted(pair[0]), sorted(pair[1]), "modules")


def helper_propagate() -> None:
    """propagate_qconfig_ gives each module the qconfig of the dictionary, by name, type and ''."""
    pair = []
    for namespace in (ours, theirs):
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))
        spec = {"": namespace.default_qconfig, nn.ReLU: namespace.default_per_channel_qconfig}
        spec["2"] = None
        namespace.propagate_qconfig_(net, spec)
        pair.append([_which(getattr(m, "qconfig", None), namespace) for m in net.modules()])
    same(pair[0], pair[1], "qconfigs")


def _which(entry: object, namespace: Any) -> str:
    names = ("default_qconfig", "default_per_channel_qconfig")
    alike = ours.qconfig_equals if namespace is ours else theirs.qconfig.qconfig_equals
    return next((name for name in names if alike(entry, getattr(namespace, name))), str(entry))


def helper_swap() -> None:
    """swap_module swaps a module that has an observer with its quantized counterpart."""
    pair = []
    for namespace in (ours, theirs):
        net = namespace.QuantWrapper(nn.Linear(3, 3)).eval()
        net.qconfig = namespace.default_qconfig
        prepared = namespace.prepare(net)
        prepared(torch.randn(4, 3))
        mapping = namespace.quantization_mappings.get_default_static_quant_module_mappings()
        swapped = namespace.swap_module(prepared.quant, mapping, {})
        untouched = nn.Linear(3, 3)
        holds(namespace.swap_module(untouched, mapping, {}) is untouched, "a float module changed")
        pair.append(type(swapped).__name__)
    same(pair[0], pair[1])


def engine(backend: str) -> None:
    """torch.backends.quantized.engine = backend: the target of that name can be the default."""
    before = targets.get_default()
    try:
        targets.set_default(backend)
        same(targets.get_default().name, targets.find(backend).name)
    finally:
        targets.set_default(before)


def checks() -> Iterator[Check]:
    """All checks of static quantization and of the helper functions."""
    for backend in ("fbgemm", "qnnpack"):
        yield Check(GUIDE, STATIC, f"integers, {backend}", partial(static_result, backend))
        yield Check(GUIDE, STATIC, f"engine '{backend}'", partial(engine, backend))
    with_biases = partial(static_result, "fbgemm", "with biases")
    yield Check(GUIDE, STATIC, "integers, fbgemm, with biases", with_biases)
    alone: dict[tuple[str, str, str], Callable[[], None]] = {
        (GUIDE, STATIC, "weights"): static_weights,
        (GUIDE, STATIC, "replaced operators"): replaced,
        (GUIDE, STATIC, "observers where torch has them"): observed,
        (GUIDE, STATIC, "a part without qconfig"): selective,
        (GUIDE, STATIC, "quantize"): partial(one_call, "quantize"),
        (GUIDE, STATIC, "quantize_qat"): partial(one_call, "quantize_qat"),
        (COVERAGE, STATIC, "QuantStub"): partial(stubs, "QuantStub"),
        (COVERAGE, STATIC, "DeQuantStub"): partial(stubs, "DeQuantStub"),
        (COVERAGE, STATIC, "QuantWrapper"): wrapper,
        (GUIDE, STATIC, "export of what was converted"): deploys,
        (COVERAGE, HELPERS, "default_eval_fn, what it runs"): evaluated,
        (COVERAGE, HELPERS, "add_observer_, what it adds"): helper_add_observer,
        (COVERAGE, HELPERS, "add_quant_dequant, what it wraps"): helper_add_quant_dequant,
        (COVERAGE, HELPERS, "propagate_qconfig_, who has which"): helper_propagate,
        (COVERAGE, HELPERS, "swap_module, what it makes"): helper_swap,
    }
    for (document, topic, thing), ask in alone.items():
        yield Check(document, topic, thing, ask)
    for verb in ("prepare", "convert", "prepare_qat"):
        yield Check(GUIDE, HELPERS, f"{verb}, inplace", partial(copies, verb))
