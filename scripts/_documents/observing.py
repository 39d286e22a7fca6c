"""Observers: scale and zero point beside torch's, over types, schemes, reduced and given ranges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import OnnxqError
from onnxq.pytorch import quantization as ours
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check, Difference
from scripts._documents.compare import SCALE, ULP, close, holds, same, same_array, same_integers
from scripts._documents.namespaces import theirs

TOPIC = "observers"
RANGES = ("MinMaxObserver", "MovingAverageMinMaxObserver")
CHANNELS = ("PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver")
AVERAGE = 4 * ULP
"""Three batches: each averaged with two products and a sum, in float32 on both sides."""

# --- Inputs: three batches of three channels, of unlike ranges.


def batches(kind: str = "mixed") -> list[Tensor]:
    """Batches (8, 3, 4); "mixed" has both signs, the others are positive, negative or constant."""
    generator = torch.Generator().manual_seed(7)
    spread = torch.tensor([0.5, 2.0, 7.0]).reshape(1, 3, 1)
    drawn = [torch.randn(8, 3, 4, generator=generator) * spread + 0.3 for _ in range(3)]
    change: dict[str, Callable[[Tensor], Tensor]] = {
        "mixed": lambda x: x,
        "positive": torch.abs,
        "negative": lambda x: -x.abs(),
        "constant": lambda x: torch.full_like(x, 3.5),
        "zero": torch.zeros_like,
    }
    return [change[kind](x) for x in drawn]


def compared(name: str, data: list[Tensor], arguments: dict[str, Any]) -> None:
    """Both observers see the batches; scales within rounding, zero points equal."""
    mine = getattr(ours, name)(**arguments)
    torchs = getattr(theirs, name)(**arguments)
    for batch in data:
        mine(batch)
        torchs(batch)
    scale, zero_point = mine.calculate_qparams()
    wanted, zero = torchs.calculate_qparams()
    close(scale, wanted, SCALE + (AVERAGE if "Moving" in name else 0.0))
    same_integers(zero_point, zero)


def both_refuse(name: str, arguments: dict[str, Any]) -> None:
    """Torch refuses the arguments, and onnxq does, saying what to use."""
    for namespace in (theirs, ours):
        try:
            getattr(namespace, name)(**arguments)
        except NotImplementedError:  # torch's
            continue
        except OnnxqError as error:
            holds("use qint8" in str(error), str(error))
            continue
        raise Difference(f"{namespace.__name__} takes {arguments}")


def smaller_error() -> None:
    """The squared error of HistogramObserver's qparams is no larger than of torch's."""
    errors = []
    for namespace in (ours, theirs):
        observer = namespace.HistogramObserver()
        for batch in batches():
            observer(batch)
        scale, zero_point = (float(x) for x in observer.calculate_qparams())
        x = torch.cat(batches())
        rounded = torch.fake_quantize_per_tensor_affine(x, scale, int(zero_point), 0, 255)
        errors.append(float((rounded - x).square().mean()))
    holds(errors[0] <= errors[1], f"{errors[0]:.4g}, torch {errors[1]:.4g}")


def checks() -> Iterator[Check]:
    """All checks of observers."""
    dtypes = (torch.quint8, torch.qint8)
    tensor = (torch.per_tensor_affine, torch.per_tensor_symmetric)
    channel = (torch.per_channel_affine, torch.per_channel_symmetric)
    every = [
        *((n, s) for n in RANGES for s in tensor),
        *((n, s) for n in CHANNELS for s in channel),
    ]
    for (name, scheme), dtype, reduced in itertools.product(every, dtypes, (False, True)):
        given = {"dtype": dtype, "qscheme": scheme, "reduce_range": reduced}
        words = f"{name}, {_short(dtype)}, {_short(scheme)}{', reduce_range' if reduced else ''}"
        if reduced and dtype == torch.quint8 and "symmetric" in str(scheme):
            yield Check(COVERAGE, TOPIC, words, partial(both_refuse, name, given))
            continue
        yield Check(COVERAGE, TOPIC, words, partial(compared, name, batches(), given))
    for kind, scheme in itertools.product(("positive", "negative", "constant", "zero"), tensor):
        ask = partial(compared, "MinMaxObserver", batches(kind), {"qscheme": scheme})
        yield Check(COVERAGE, TOPIC, f"MinMaxObserver, {_short(scheme)}, {kind} values", ask)
    for dtype, reduced in itertools.product(dtypes, (False, True)):
        given = {"dtype": dtype, "reduce_range": reduced}
        words = f"HistogramObserver, {_short(dtype)}{', reduce_range' if reduced else ''}"
        yield Check(
            COVERAGE, TOPIC, words, partial(compared, "HistogramObserver", batches(), given)
        )
    yield Check(COVERAGE, TOPIC, "HistogramObserver, squared error beside torch's", smaller_error)
    for name, more in (*((n, {}) for n in RANGES), *((n, {"ch_axis": 1}) for n in CHANNELS)):
        yield Check(
            COVERAGE,
            TOPIC,
            f"{name}, {more or 'quant_min, quant_max'}",
            partial(compared, name, batches(), more or {"quant_min": 0, "quant_max": 15}),
        )
        yield Check(GUIDE, TOPIC, f"{name}, min_val and max_val", partial(buffers, name))
        yield Check(GUIDE, TOPIC, f"{name}, reset_min_max_vals", partial(reset, name))
        yield Check(GUIDE, TOPIC, f"{name}, state_dict of torch's", partial(state, name))
        yield Check(GUIDE, TOPIC, f"{name}, before any data", partial(compared, name, [], {}))
        yield Check(
            GUIDE,
            TOPIC,
            f"{name}, an empty batch",
            partial(compared, name, [*batches(), torch.zeros(0, 3, 4)], {}),
        )
    for constant in (0.1, 0.5):
        given = {"averaging_constant": constant}
        for name in (RANGES[1], CHANNELS[1]):
            ask = partial(compared, name, batches(), given)
            yield Check(COVERAGE, TOPIC, f"{name}, averaging_constant={constant}", ask)
    for name in (*RANGES, *CHANNELS, "HistogramObserver"):
        yield Check(DESIGN, TOPIC, f"{name} does not modify activations", partial(passes, name))
        yield Check(DESIGN, TOPIC, f"{name}, zero without error", partial(zero_is_exact, name))
        yield Check(GUIDE, TOPIC, f"{name}.with_args", partial(with_args, name))
    yield Check(COVERAGE, TOPIC, "NoopObserver passes through", partial(passes, "NoopObserver"))
    yield Check(COVERAGE, TOPIC, "NoopObserver, dtype", noop_dtype)
    yield Check(
        COVERAGE, TOPIC, "NoopObserver, calculate_qparams", partial(no_scale, "NoopObserver")
    )
    yield Check(COVERAGE, TOPIC, "RecordingObserver records all tensors", recording)
    recorder = partial(no_scale, "RecordingObserver")
    yield Check(COVERAGE, TOPIC, "RecordingObserver, calculate_qparams", recorder)
    yield Check(COVERAGE, TOPIC, "Observer is ObserverBase", observer_is_base)
    yield Check(GUIDE, TOPIC, "ObserverBase is abstract", abstract)
    yield Check(GUIDE, TOPIC, "HistogramObserver.bins", bins)
    yield Check(DESIGN, TOPIC, "an observer of one's own in prepare and convert", own_observer)
    yield Check(DESIGN, TOPIC, "a subclass of MinMaxObserver in prepare and convert", own_range)
    for name in ("default_observer", "default_weight_observer"):
        yield Check(COVERAGE, TOPIC, f"{name}, its arguments", partial(defaults, name))


def _short(x: object) -> str:
    return str(x).removeprefix("torch.")


# --- What the documents say beside the numbers.


def buffers(name: str) -> None:
    """min_val and max_val hold the range."""
    mine, torchs = getattr(ours, name)(), getattr(theirs, name)()
    for batch in batches():
        mine(batch)
        torchs(batch)
    for limit in ("min_val", "max_val"):
        close(getattr(mine, limit), getattr(torchs, limit), AVERAGE)


def reset(name: str) -> None:
    """reset_min_max_vals forgets what was seen."""
    mine = getattr(ours, name)()
    mine(batches()[0] * 100)
    mine.reset_min_max_vals()
    mine(batches()[1])
    other = getattr(ours, name)()
    other(batches()[1])
    for got, wanted in zip(mine.calculate_qparams(), other.calculate_qparams(), strict=True):
        same_array(got, wanted)


def state(name: str) -> None:
    """A state_dict that torch's observer wrote is read."""
    torchs = getattr(theirs, name)()
    for batch in batches():
        torchs(batch)
    mine = getattr(ours, name)()
    mine.load_state_dict(torchs.state_dict())
    close(mine.calculate_qparams()[0], torchs.calculate_qparams()[0], SCALE)
    same_integers(mine.calculate_qparams()[1], torchs.calculate_qparams()[1])


def passes(name: str) -> None:
    """The result is the input itself."""
    x = batches()[0]
    holds(getattr(ours, name)()(x) is x, "another tensor came back")


def zero_is_exact(name: str) -> None:
    """Zero is a level: the zero point is an integer in range, for values far from zero, too."""
    observer = getattr(ours, name)()
    observer(batches("positive")[0] + 5)
    _, zero_point = observer.calculate_qparams()
    holds(not zero_point.is_floating_point(), f"a zero point of type {zero_point.dtype}")
    holds(bool(((zero_point >= 0) & (zero_point <= 255)).all()), f"zero point {zero_point}")


def with_args(name: str) -> None:
    """with_args makes modules with these arguments, a new one at each call."""
    maker = getattr(ours, name).with_args(dtype=torch.qint8, reduce_range=True)
    torchs = getattr(theirs, name).with_args(dtype=torch.qint8, reduce_range=True)
    holds(maker() is not maker(), "the same module twice")
    for attribute in ("dtype", "qscheme", "quant_min", "quant_max"):
        same(getattr(maker(), attribute), getattr(torchs(), attribute), attribute)


def noop_dtype() -> None:
    """The type that the observer was given is its type."""
    for dtype in (torch.float16, torch.float32):
        same(ours.NoopObserver(dtype=dtype).dtype, theirs.NoopObserver(dtype=dtype).dtype)


def no_scale(name: str) -> None:
    """calculate_qparams raises, as torch's does."""
    for namespace in (theirs, ours):
        try:
            found = getattr(namespace, name)().calculate_qparams()
        except Exception:  # of whatever type: there is no scale
            continue
        raise Difference(f"{namespace.__name__} gives {found}")


def recording() -> None:
    """get_tensor_value has copies of all tensors, in order."""
    observer = ours.RecordingObserver()
    data = batches()
    for batch in data:
        observer(batch)
    same(len(observer.get_tensor_value()), len(data), "tensors")
    for got, wanted in zip(observer.get_tensor_value(), data, strict=True):
        same_array(got, wanted)


def observer_is_base() -> None:
    """Every documented observer is an Observer, and an ObserverBase."""
    for name in (*RANGES, *CHANNELS, "HistogramObserver", "RecordingObserver", "NoopObserver"):
        for base in (ours.Observer, ours.ObserverBase, nn.Module):
            holds(issubclass(getattr(ours, name), base), f"{name} is no {base.__name__}")


def abstract() -> None:
    """ObserverBase does not say a scale by itself."""
    try:
        ours.ObserverBase(dtype=torch.quint8).calculate_qparams()
    except NotImplementedError:
        return
    raise Difference("calculate_qparams of the abstract class returns")


def bins() -> None:
    """The attribute `bins` is the argument, 2048 by default."""
    same(ours.HistogramObserver(bins=512).bins, theirs.HistogramObserver(bins=512).bins, "bins=512")
    same(ours.HistogramObserver().bins, theirs.HistogramObserver().bins, "bins")


def own_observer() -> None:
    """A subclass of ObserverBase says the scale of what it observed."""

    class Fixed(ours.ObserverBase):
        def forward(self, x: Tensor) -> Tensor:
            return x

        def calculate_qparams(self) -> tuple[Tensor, Tensor]:
            return torch.tensor([0.0625]), torch.tensor([17])

    same(_scale_with(Fixed), (0.0625, 17), "scale and zero point")


def own_range() -> None:
    """A subclass of MinMaxObserver with twice the scale."""

    class Twice(ours.MinMaxObserver):
        def calculate_qparams(self) -> tuple[Tensor, Tensor]:
            scale, zero_point = super().calculate_qparams()
            return scale * 2, zero_point

    plain = _scale_with(ours.MinMaxObserver)
    same(_scale_with(Twice), (plain[0] * 2, plain[1]), "scale and zero point")


def _scale_with(activation: Any) -> tuple[float, int]:
    torch.manual_seed(3)
    net: Any = ours.QuantWrapper(nn.Linear(4, 4)).eval()
    net.qconfig = ours.QConfig(activation=activation, weight=ours.default_weight_observer)
    prepared = ours.prepare(net)
    prepared(torch.randn(16, 4))
    layer: Any = ours.convert(prepared).module
    return float(layer.scale), int(layer.zero_point)


def defaults(name: str) -> None:
    """The observer is of torch's class, with its arguments."""
    mine, torchs = getattr(ours, name)(), getattr(theirs, name)()
    same(type(mine).__name__, type(torchs).__name__, "class")
    for attribute in ("dtype", "qscheme"):
        same(getattr(mine, attribute), getattr(torchs, attribute), attribute)
    for batch in batches():
        mine(batch)
        torchs(batch)
    close(mine.calculate_qparams()[0], torchs.calculate_qparams()[0], SCALE)
    same_integers(mine.calculate_qparams()[1], torchs.calculate_qparams()[1])
