"""The table of this machine, with what it is."""

import datetime
import platform
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from onnxq.core.arrays import Singles
from onnxq.core.processor import processor_name
from onnxq.operator import Precision
from onnxq.operator.site import MICROSOFT
from onnxq.ort.runtime import FirstRunIn, Optimization, Session, open_session
from onnxq.ort.version import distribution
from onnxq.targets import find
from onnxq.targets.detection import flags_here
from onnxq.targets.machines import AUTO
from onnxq.times import Change, Costs, Timing, Work
from onnxq.times.fit import LEAST_NS
from onnxq.times.microbenchmarks.convolutions import convolution_links, fused_links
from onnxq.times.microbenchmarks.elements import element_links
from onnxq.times.microbenchmarks.link import (
    SHAPE,
    Arrangement,
    Build,
    Link,
    Parts,
    TimedNode,
    both,
    calling_on_integers,
    integers,
    nothing,
    numbers,
    qparams,
    quantized,
    weight_of,
    weights,
)
from onnxq.times.work import RUN

# --- Measures links: the least CPU time of the longer model, less that of the shorter one


Progress = Callable[[int, int | None], None]
Clock = Callable[["Link", int, int], tuple[float, float]]
"""clock(link, more, runs): least CPU seconds of one run of the link's shorter model, and of the one
with `more` links on top."""
RUNS = 20
"""Runs of each model in one pass."""
PASSES = 3
"""Passes over all links: what disturbs one of them has passed by the next."""
DIFFERENCE_S = 60e-6
"""Time by which the longer model is to take longer, some fifty times what two runs differ by."""
MOST_LINKS = 64
CACHE_BYTES = 4 << 20
"""Bytes that are read ahead of every run: in a network, the weights of a node are not in the cache,
whose size (2 MiB) other nodes' weights and tensors have filled since the last run."""


def seconds_here(link: Link, more: int, runs: int) -> tuple[float, float]:
    """Least CPU seconds of one run of the shorter model and of the longer one, in turns."""
    with _opened(link, link.few) as few, _opened(link, link.few + more) as many:
        rounds = [[_run(each, link) for each in (few, many)] for _ in range(runs + 1)][1:]
    return min(each[0] for each in rounds), min(each[1] for each in rounds)


def _opened(link: Link, count: int) -> Session:
    here = FirstRunIn.THIS_PROCESS  # a model of onnxq's own
    model = link.model(count)
    return open_session(model, threads=1, optimization=link.optimization, first_run=here)


def measured(
    links: Sequence[Link],
    passes: int = PASSES,
    progress: Progress | None = None,
    clock: Clock = seconds_here,
) -> tuple[Timing, ...]:
    """Timing of a run with nothing in it, then one per work of each link, in their order.

    Interruptions by other programs only ever add time, so that the least of all rounds counts.
    """
    least = [(float("inf"), float("inf"))] * len(links)
    more = [link.more for link in links]
    for turn in range(passes):
        for number, link in enumerate(links):
            if turn == 0:
                more[number] = _links_on_top(link, clock)
            few, many = clock(link, more[number], RUNS)
            least[number] = min(least[number][0], few), min(least[number][1], many)
            if progress is not None:
                progress(turn * len(links) + number + 1, passes * len(links))
    ns = [(many - few) / count * 1e9 for count, (few, many) in zip(more, least, strict=True)]
    run = [
        Timing(Work(RUN), link.precision, least[number][0] * 1e9 - ns[number])
        for number, link in enumerate(links)
        if (link.works[0], link.precision) == SHAPE
    ]
    return (*run, *_without_others(links, ns))


def _links_on_top(link: Link, clock: Clock) -> int:
    """Links that the longer model has on top, so that the time of them all can be told."""
    few, many = clock(link, link.more, 3)
    one = max(many - few, 0.0) / link.more
    wanted = MOST_LINKS if one * MOST_LINKS < DIFFERENCE_S else int(DIFFERENCE_S / one)
    return max(link.more, wanted)


def _without_others(links: Sequence[Link], ns: Sequence[float]) -> tuple[Timing, ...]:
    """The time of each link's own works: first of links that hold no others, then of the rest."""
    found: dict[int, list[Timing]] = {}
    for depth in range(1 + max(map(_depth, links))):
        known = Costs("", "", "", "", "", "", "", tuple(t for own in found.values() for t in own))
        for number, link in enumerate(links):
            if _depth(link) == depth:
                share = (ns[number] - _others(link, known)) / len(link.works)
                found[number] = [
                    Timing(w, link.precision, max(share, LEAST_NS)) for w in link.works
                ]
    return tuple(timing for number in sorted(found) for timing in found[number])


def _depth(link: Link) -> int:
    """0 where a link holds nothing else, 1 where sizes are read behind it, else 2."""
    others = set(link.minus)
    return 2 if others - {SHAPE} else len(others)


def _others(link: Link, known: Costs) -> float:
    """Nanoseconds of what a link holds beside its works."""
    total = 0.0
    for work, precision in link.minus:
        found = known.node(work, precision)
        assert found is not None, f"{work} in {precision} is to be measured, too"
        total += found.ns
    return total


def _run(session: Session, link: Link) -> float:
    _OTHERS.max()
    begun = time.thread_time()
    session.run(link.inputs)
    return time.thread_time() - begun


_OTHERS = np.zeros(CACHE_BYTES // 4, np.float32)
"""Data of others."""


# --- The table of this machine, with what it is


DECIDING = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""Flags of processors that decide which kernels ONNX Runtime takes."""


def measure_costs(
    target: str = AUTO, passes: int = PASSES, progress: Progress | None = None
) -> Costs:
    """Times of all kinds of nodes on this machine, one thread; takes 2 to 8 minutes a pass.

    Args:
        target: name of the target that the table is of; this machine's, unless you know better.
        passes: over all measurements; the least time counts, so that more of them bear more of
            what else the machine does.
        progress: called after each measurement.
    Raises:
        QConfigError: no target has that name.
    """
    name = find(target).name
    timings = measured(list(links()), passes, progress)
    return Costs(
        target=name,
        machine=processor_name() or platform.machine(),
        instruction_sets=" ".join(flag for flag in DECIDING if flag in flags_here()),
        onnxruntime=" ".join(distribution()),
        threads="1",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        throughput=throughput_of(timings),
        timings=timings,
    )


def links() -> Iterator[Link]:
    """Everything that is measured."""
    yield from element_links()
    yield from matmul_links()
    yield from recurrent_links()
    yield from convolution_links()
    yield from fused_links()


def throughput_of(timings: tuple[Timing, ...]) -> str:
    """Most operations per second in MatMuls, which tell the instructions in use."""
    best = {
        precision: max(
            (
                2 * t.work.products / t.ns
                for t in timings
                if t.work.constants and t.precision is precision
            ),
            default=0.0,
        )
        for precision in (Precision.INT8, Precision.FLOAT)
    }
    return f"{best[Precision.INT8]:.0f} GOP/s on integers, {best[Precision.FLOAT]:.0f} on floats"


# --- MatMuls and recurrent nodes to be measured, in each precision that they take


WEIGHTS = (
    *((32, 32), (64, 64), (64, 256), (128, 128), (128, 512), (192, 192), (192, 768), (256, 256)),
    *((256, 1024), (384, 384), (384, 1536), (768, 768), (768, 3072), (1024, 1024), (512, 64)),
)
"""(k, n), and back."""
ROWS = (1, 8, 32, 128, 197, 512)
MOST_MULTIPLY_ADDS = 512 * 1024 * 1024
ATTENTION = (
    *(
        (1, 16, 64),
        (4, 16, 32),
        (3, 65, 64),
        (4, 64, 32),
        (6, 197, 64),
        (12, 128, 64),
        (3, 197, 64),
    ),
    *((12, 32, 64), (64, 49, 32), (8, 256, 64), (2, 128, 64)),
)
"""(heads, rows, size of a head)."""
RECURRENT = (
    *((32, 32), (32, 64), (50, 64), (100, 96), (50, 128), (100, 128), (26, 256), (64, 256)),
    *((16, 512),),
)
"""(steps, hidden size), and as many features: they are a chain."""


def matmul_links() -> Iterator[Link]:
    """Constant weights in four precisions, and MatMuls of two activations in two."""
    for k, n in WEIGHTS:
        for m in ROWS:
            if m * k * n <= MOST_MULTIPLY_ADDS:
                yield from _constant(m, k, n)
    for heads, rows, size in ATTENTION:
        yield from _activations(numbers(1, heads, rows, size), numbers(1, heads, size, rows))
        yield from _activations(numbers(1, heads, rows, rows), numbers(1, heads, rows, size))


def _constant(m: int, k: int, n: int) -> Iterator[Link]:
    there = TimedNode("MatMul", (numbers(m, k),), (numbers(k, n),))
    back = TimedNode("MatMul", (numbers(m, n),), (numbers(n, k),))
    works = (there.work, back.work) if k != n else (there.work,)
    count = 2 // len(works)
    quantize = tuple((Change.QUANTIZE.work(m * size), Precision.FLOAT) for size in (k, n))
    builds: dict[Precision, tuple[Build, Build]] = {
        Precision.FLOAT: (_float(k, n), _float(n, k)),
        Precision.INT8: (_integer(k, n), _integer(n, k)),
        Precision.INT8_FLOAT_OUTPUT: (_float_result(k, n), _float_result(n, k)),
        Precision.DYNAMIC_INT8: (_dynamic(k, n), _dynamic(n, k)),
    }
    for precision, (first, second) in builds.items():
        yield Link(
            works,
            precision,
            first if k == n else both(first, second),
            there.feeds(),
            Arrangement.CHAIN,
            quantized if precision is Precision.INT8 else nothing,
            optimization=Optimization.ALL,
            minus=quantize[: len(works)] if precision is Precision.INT8_FLOAT_OUTPUT else (),
            few=count,
            more=2 * count,
        )


def _float(k: int, n: int) -> Build:
    w = numbers(k, n) / np.float32(np.sqrt(k))

    def build(parts: Parts, name: str) -> str:
        return parts.add("MatMul", [name, parts.constant(np.roll(w, len(parts.nodes)))])

    return build


def _integer(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w, _ = weight_of(parts, weights(k, n), 1)
        return quantized(parts, parts.add("MatMul", [name, w]))

    return build


def _float_result(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        scale, point = qparams(parts)
        x = parts.add("QuantizeLinear", [name, scale, point])
        w = [np.roll(weights(k, n), len(parts.nodes)), np.full(n, 0.01, np.float32)]
        named = [parts.constant(each) for each in (*w, np.zeros(n, np.int8))]
        operands = [x, named[0], scale, named[1], point, named[2]]
        return parts.add("MatMulIntegerToFloat", operands, {}, MICROSOFT)

    return build


def _dynamic(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w = [np.roll(weights(k, n), len(parts.nodes)), np.full(n, 0.01, np.float32)]
        named = [parts.constant(each) for each in (*w, np.zeros(n, np.int8))]
        return parts.add("DynamicQuantizeMatMul", [name, *named], {}, MICROSOFT)

    return build


def _activations(a: Singles, b: Singles) -> Iterator[Link]:
    node = TimedNode("MatMul", (a, b))
    yield Link.alone(node.work, Precision.FLOAT, node.build, node.feeds())
    yield Link.alone(
        node.work,
        Precision.INT8,
        calling_on_integers("QLinearMatMul", {}, ("x1",), ""),
        {"x": integers(*a.shape), "x1": integers(*b.shape)},
    )


def recurrent_links() -> Iterator[Link]:
    """LSTM in float and dynamically, GRU in float: a chain, one behind the other."""
    for steps, hidden in RECURRENT:
        for op_type, gates in (("LSTM", 4), ("GRU", 3)):
            shapes = ((1, gates * hidden, hidden),) * 2
            w, r = (numbers(*shape) / np.float32(np.sqrt(hidden)) for shape in shapes)
            node = TimedNode(op_type, (numbers(steps, 1, hidden),), (w, r), {"hidden_size": hidden})
            yield Link(
                (node.work,),
                Precision.FLOAT,
                both(node.build, _squeezed),
                node.feeds(),
                Arrangement.CHAIN,
                more=2,
            )
            if op_type == "LSTM":
                yield Link(
                    (node.work,),
                    Precision.DYNAMIC_INT8,
                    both(_dynamic_lstm(hidden), _squeezed),
                    node.feeds(),
                    Arrangement.CHAIN,
                    more=2,
                )


def _squeezed(parts: Parts, name: str) -> str:
    """Y (steps, 1, batch, hidden) as the next X."""
    return parts.add("Squeeze", [name, parts.constant(np.array([1]))])


def _dynamic_lstm(hidden: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w = parts.constant(weights(1, hidden, 4 * hidden))
        scale = parts.constant(np.full((1, 4 * hidden), 0.002, np.float32))
        point = parts.constant(np.zeros((1, 4 * hidden), np.int8))
        inputs = [name, w, w, "", "", "", "", "", scale, point, scale, point]
        return parts.add("DynamicQuantizeLSTM", inputs, {"hidden_size": hidden}, MICROSOFT)

    return build
