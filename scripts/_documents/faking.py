"""FakeQuantize and QConfigs: values, gradients, switches and contents beside torch's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.pytorch import quantization as ours
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check
from scripts._documents.compare import (
    SCALE,
    ULP,
    close,
    holds,
    same,
    same_array,
    same_integers,
    steps_apart,
)
from scripts._documents.namespaces import theirs
from scripts._documents.observing import AVERAGE, batches

FAKE, CONFIG = "FakeQuantize", "qconfig"
CASES: dict[str, dict[str, Any]] = {
    "quint8, affine": {"quant_min": 0, "quant_max": 255},
    "quint8, reduced": {"quant_min": 0, "quant_max": 127},
    "qint8, symmetric": {
        "quant_min": -128,
        "quant_max": 127,
        "dtype": torch.qint8,
        "qscheme": torch.per_tensor_symmetric,
    },
    "4 bits, symmetric": {
        "quant_min": -8,
        "quant_max": 7,
        "dtype": torch.qint8,
        "qscheme": torch.per_tensor_symmetric,
    },
    "per channel, symmetric": {
        "quant_min": -128,
        "quant_max": 127,
        "dtype": torch.qint8,
        "ch_axis": 1,
        "qscheme": torch.per_channel_symmetric,
        "observer": "PerChannelMinMaxObserver",
    },
    "per channel, moving": {
        "quant_min": -128,
        "quant_max": 127,
        "dtype": torch.qint8,
        "ch_axis": 0,
        "qscheme": torch.per_channel_symmetric,
        "observer": "MovingAveragePerChannelMinMaxObserver",
    },
}
QCONFIGS = [
    "default_qconfig",
    "default_qat_qconfig",
    "default_dynamic_qconfig",
]
BACKENDS = ("fbgemm", "qnnpack")


def made(namespace: Any, case: str) -> Any:
    """A FakeQuantize of that case, of one of both namespaces."""
    given = dict(CASES[case])
    observer = getattr(namespace, given.pop("observer", "MovingAverageMinMaxObserver"))
    return namespace.FakeQuantize(observer=observer, **given)


def both(case: str) -> tuple[Any, Any]:
    """Both FakeQuantize, after they have seen the same batches."""
    mine, torchs = made(ours, case), made(theirs, case)
    for batch in batches():
        mine(batch)
        torchs(batch)
    return mine, torchs


def checks() -> Iterator[Check]:
    """All checks of FakeQuantize and of QConfigs."""
    for case, (what, ask) in itertools.product(CASES, _OF_CASES.items()):
        yield Check(COVERAGE, FAKE, f"{case}: {what}", partial(ask, case))
    for what, lone in _ALONE.items():
        yield Check(DESIGN if "own" in what else GUIDE, FAKE, what, lone)
    for name, part in itertools.product(QCONFIGS, ("activation", "weight")):
        ask = partial(qconfig, name, None, part)
        yield Check(COVERAGE, CONFIG, f"{name}.{part}", ask)
    makers = ("get_default_qconfig", "get_default_qat_qconfig")
    for name, backend, part in itertools.product(makers, BACKENDS, ("activation", "weight")):
        ask = partial(qconfig, name, backend, part)
        yield Check(GUIDE, CONFIG, f"{name}('{backend}').{part}", ask)
    for name, (activation, weight) in _SAME_AS.items():
        yield Check(
            COVERAGE, CONFIG, f"{name}, 'same as'", partial(same_as, name, activation, weight)
        )
    yield Check(COVERAGE, CONFIG, "QConfig(activation, weight) holds both", holds_both)
    yield Check(GUIDE, CONFIG, "QConfig refuses an instance", instance_refused)


# --- FakeQuantize, case by case.


def forward(case: str) -> None:
    """The rounded values are the same levels."""
    mine, torchs = both(case)
    x = batches()[0] * 1.3
    for fake in (mine, torchs):
        fake.disable_observer()
    if torchs.scale.numel() == 1:
        steps_apart(mine(x), torchs(x), float(torchs.scale))
    close(mine(x), torchs(x), SCALE + AVERAGE + ULP)


def gradient(case: str) -> None:
    """The gradient passes inside of the range, and is 0 outside: equal bit for bit."""
    mine, torchs = both(case)
    found: list[Any] = []
    for fake in (mine, torchs):
        fake.disable_observer()
        x = (batches()[0] * 1.7).requires_grad_()
        (fake(x) * torch.linspace(1, 2, x.numel()).reshape(x.shape)).sum().backward()
        found.append(x.grad)
    holds(bool((found[1] == 0).any()), "the case clamps nothing")
    same_array(found[0], found[1])


def qparams(case: str) -> None:
    """calculate_qparams gives torch's scale and zero point."""
    mine, torchs = both(case)
    close(mine.calculate_qparams()[0], torchs.calculate_qparams()[0], SCALE + AVERAGE)
    same_integers(mine.calculate_qparams()[1], torchs.calculate_qparams()[1])


def buffers(case: str) -> None:
    """Scale and zero_point are buffers with torch's values; quant_min and quant_max are its own."""
    mine, torchs = both(case)
    named = dict(mine.named_buffers())
    close(named["scale"].reshape(-1), torchs.scale, SCALE + AVERAGE)
    same_integers(named["zero_point"].reshape(-1), torchs.zero_point)
    for attribute in ("quant_min", "quant_max", "ch_axis"):
        same(getattr(mine, attribute), getattr(torchs, attribute), attribute)


_OF_CASES = {
    "forward": forward,
    "gradient": gradient,
    "calculate_qparams": qparams,
    "buffers": buffers,
}

# --- FakeQuantize: what it does apart from numbers.


def switched_off() -> None:
    """disable_fake_quant lets values pass as they are, and still observes."""
    fake = ours.FakeQuantize()
    fake.disable_fake_quant()
    x = batches()[0]
    same_array(fake(x), x)
    holds(float(fake.calculate_qparams()[0]) != 1, "nothing was observed")
    fake.enable_fake_quant()
    holds(not torch.equal(fake(x), x), "enable_fake_quant rounds nothing")


def observer_off() -> None:
    """disable_observer keeps scale and zero point."""
    fake = ours.FakeQuantize()
    fake(batches()[0])
    fake.disable_observer()
    before = fake.scale.clone()
    fake(batches()[0] * 100)
    same_array(fake.scale, before)
    fake.enable_observer()
    fake(batches()[0] * 100)
    holds(not torch.equal(fake.scale, before), "enable_observer observes nothing")


def same_size() -> None:
    """The result is a float tensor of the input's size."""
    x = batches()[0]
    y = ours.FakeQuantize()(x)
    same((y.shape, y.dtype), (x.shape, x.dtype))


def has_observer() -> None:
    """activation_post_process observes, as the guide's name for observers in modules."""
    inner = ours.FakeQuantize().activation_post_process
    inner(batches()[0])
    torchs = theirs.FakeQuantize().activation_post_process
    torchs(batches()[0])
    close(inner.calculate_qparams()[0], torchs.calculate_qparams()[0], SCALE)


def state() -> None:
    """A state_dict that torch's module wrote is read."""
    torchs = theirs.FakeQuantize()
    torchs(batches()[0])
    mine = ours.FakeQuantize()
    mine.load_state_dict(torchs.state_dict())
    close(mine.scale.reshape(-1), torchs.scale, 0.0)
    same_integers(mine.zero_point.reshape(-1), torchs.zero_point)


def with_args() -> None:
    """with_args makes new modules with these arguments."""
    maker = ours.FakeQuantize.with_args(quant_min=0, quant_max=15)
    holds(maker() is not maker(), "the same module twice")
    same((maker().quant_min, maker().quant_max), (0, 15))


def own_fake() -> None:
    """A subclass with a forward of its own rounds in prepare_qat as it says."""

    class Coarse(ours.FakeQuantize):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            return x.round()

    net: Any = ours.QuantWrapper(nn.Linear(4, 4)).train()
    weight = ours.default_weight_fake_quant
    net.qconfig = ours.QConfig(activation=Coarse, weight=weight)
    y = ours.prepare_qat(net)(batches()[0])
    same_array(y, y.round())


_ALONE = {
    "disable_fake_quant, enable_fake_quant": switched_off,
    "disable_observer, enable_observer": observer_off,
    "a float tensor of the same size": same_size,
    "activation_post_process": has_observer,
    "state_dict of torch's": state,
    "with_args": with_args,
    "a subclass of one's own in prepare_qat": own_fake,
}

# --- QConfigs: what they make is of torch's class, with its arguments, and finds its scale.


def qconfig(name: str, backend: str | None, part: str) -> None:
    """The part of a named QConfig makes what torch's makes."""
    pair = []
    for namespace in (ours, theirs):
        entry = getattr(namespace, name)
        pair.append(getattr(entry if backend is None else entry(backend), part)())
    mine, torchs = pair
    fused = "FusedMovingAvgObsFakeQuantize"  # one step of observing and rounding: the same values
    wanted = type(torchs).__name__.replace(fused, "FakeQuantize")
    same(type(mine).__name__.replace(fused, "FakeQuantize"), wanted, "class")
    same(_word(mine.dtype), _word(torchs.dtype), "dtype")
    if wanted == "PlaceholderObserver":
        same(mine.is_dynamic, torchs.is_dynamic, "is_dynamic")
        return
    for attribute in ("quant_min", "quant_max"):
        same(getattr(mine, attribute), getattr(torchs, attribute), attribute)
    same(_word(mine.qscheme), _word(torchs.qscheme), "qscheme")
    for batch in batches():  # averages, channels and reduced ranges show in what they find
        mine(batch)
        torchs(batch)
    close(mine.calculate_qparams()[0], torchs.calculate_qparams()[0], SCALE + AVERAGE)
    same_integers(mine.calculate_qparams()[1], torchs.calculate_qparams()[1])


def _word(x: object) -> str:
    """A dtype or a qscheme of torch's or onnxq's by one word: uint8, per_tensor_affine."""
    words = getattr(x, "value", None) or getattr(x, "name", None) or str(x)
    return str(words).removeprefix("torch.").replace("quint8", "uint8").replace("qint8", "int8")


_SAME_AS = {
    "default_qconfig": ("default_observer", "default_weight_observer"),
    "default_qat_qconfig": ("default_fake_quant", "default_weight_fake_quant"),
    "default_dynamic_qconfig": (None, "default_weight_observer"),
    "float16_dynamic_qconfig": (None, None),
}


def same_as(name: str, activation: str | None, weight: str | None) -> None:
    """The QConfig is the one that the document writes out."""
    entry = getattr(ours, name)
    half = ours.NoopObserver.with_args(dtype=torch.float16)
    wanted = half if weight is None else getattr(ours, weight)
    holds(entry.weight == wanted, f"weight {entry.weight}")
    if activation is not None:
        holds(entry.activation == getattr(ours, activation), f"activation {entry.activation}")


def holds_both() -> None:
    """A QConfig is a pair of what it was given."""
    entry = ours.QConfig(activation=ours.MinMaxObserver, weight=ours.default_weight_observer)
    same(tuple(entry), (ours.MinMaxObserver, ours.default_weight_observer))


def instance_refused() -> None:
    """An observer's instance is no argument: torch raises ValueError, onnxq an error by name."""
    for namespace in (theirs, ours):
        try:
            namespace.QConfig(activation=namespace.MinMaxObserver(), weight=nn.Identity)
        except Exception as error:  # torch's is a ValueError
            holds("instance" in str(error), str(error))
            continue
        holds(False, f"{namespace.__name__} takes an instance")  # the claim
