"""Layer by layer: each sees what the quantized model, improved so far, makes of the samples.

Both models run in subgraphs (onnxq.weights.subgraphs), side by side, batch by batch:

    float      subgraph k   ->  Y, the layer's result          quantized  subgraph k - 1  ->  X
    the algorithm looks at (X, Y) of every batch, and proposes constants
    quantized  subgraph k, with these constants in place

Each node ahead of the last layer runs once in each model, whatever the number of layers; then whole
models are judged. Of X and Y, one batch is looked at at a time; tensors between subgraphs are kept
for all batches, in files where they are large.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onnxq.core.arrays import Array, Singles
from onnxq.core.threads import workers
from onnxq.graph.walk import node_name
from onnxq.ort import runtime
from onnxq.quantized.outcome import Outcome
from onnxq.samples import Batches, input_specs
from onnxq.samples.excerpt import is_held_apart, rows_of
from onnxq.samples.inputs import Batch
from onnxq.samples.state import State
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite import rewrite, write_part
from onnxq.weights import judgement
from onnxq.weights.algorithm import Improved
from onnxq.weights.layers import Constants, Layer, NewConstants, layers_of
from onnxq.weights.subgraphs import SpilledArrays, Subgraph, cut, subgraphs_of, with_folded_behind


@dataclass(frozen=True, slots=True, eq=False)
class LayerProposal:
    """Constants for a layer, judged on samples that they were not made from.

    Attributes:
        new: the constants; kept where after_db is above before_db. None: none to propose.
        before_db: SQNR of the layer's result, with the input that it gets, as it is; None: not
            measured.
        after_db: likewise with the new constants.
        why: words for the outcome, such as the reason for proposing none.
    """

    new: NewConstants | None
    before_db: float | None = None
    after_db: float | None = None
    why: str = ""


class LayerWork(Protocol):
    """The work on one layer: it looks at every batch, then proposes."""

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Looks at a batch.

        `x`: input of the layer in the quantized model, dequantized: float32, shape of the tensor.
        `y`: result of the layer in the float model, with its bias; likewise.
        `index`: of the batch; `is_held_apart(index)` says that it judges.
        """

    def proposal(self) -> LayerProposal:
        """The proposal after all batches."""


Begin = Callable[["Layer", int], LayerWork | str]
"""Begins the work on a layer, for a number of batches; or says why there is none to do."""


def layerwise(
    prepared: Prepared,
    plan: Plan,
    samples: Batches,
    name: str,
    begin: Begin,
    judges: Sequence[Batch] = (),
    most_layers: int = sys.maxsize,
) -> Improved:
    """The model with the proposals for its layers that were kept, and an outcome for each layer.

    `judges` are more batches that judge the outputs, from which no layer is made. Layers behind the
    first `most_layers` stay as they are.
    """
    batches = judgement.enough(samples, prepared)
    if why := judgement.too_few(batches):
        return with_outcomes(Improved(prepared, plan), (Outcome(name, "", False, why=why),))
    # sums are the same whatever the number of cores, with one BLAS thread
    quiet = np.errstate(over="ignore", invalid="ignore")  # numbers near float32's end: see `round`
    with workers(1), quiet, SpilledArrays() as floats, SpilledArrays() as quantized:
        walk = _Walk(prepared, plan, batches, name, begin, floats, quantized)
        outcomes = walk.through(most_layers)
        better = dataclasses.replace(prepared, model=walk.now.model, aim=walk.aim)
        improved = Improved(better, walk.now.plan)
        whole = walk.judged(judges)
    count = sum(map(rows_of, batches))
    if count < judgement.ENOUGH_SAMPLES:
        whole = dataclasses.replace(whole, why=FEW.format(count))
    if not whole.kept:
        improved = Improved(prepared, plan)
        outcomes = [dataclasses.replace(o, kept=False, why=o.why or WHOLE) for o in outcomes]
    return with_outcomes(improved, (*outcomes, whole))


NO_HELP = "it does not help there"
CHANCE = "{} samples cannot tell this loss from chance"
FEW = f"made from {{}} samples, which is few: give {judgement.ENOUGH_SAMPLES} or more"
WHOLE = "the outputs lose by it"
NO_ELEMENTS = "the samples have no elements there"
SHARED = "other nodes read its weight, too"
UNKNOWN = "it stands in a branch or a loop, or no matrix product is known of it"
TOO_MANY = "it stands behind the first {} layers: `--improve round` looks at all"


def with_outcomes(improved: Improved, outcomes: tuple[Outcome, ...]) -> Improved:
    """Both values with the outcomes of one more algorithm."""
    every = (*improved.plan.outcomes, *outcomes)
    return Improved(
        dataclasses.replace(improved.prepared, outcomes=every),
        dataclasses.replace(improved.plan, outcomes=every),
    )


class _Walk:
    """Both models, walked through once."""

    def __init__(
        self,
        prepared: Prepared,
        plan: Plan,
        batches: Sequence[Batch],
        name: str,
        begin: Begin,
        floats: SpilledArrays,
        quantized: SpilledArrays,
    ) -> None:
        self.prepared, self.batches, self.name, self.begin = prepared, batches, name, begin
        self.planned = plan
        self.now = Constants(prepared, plan)
        self.aim = prepared.model if prepared.aim is None else prepared.aim
        self.floats = {node_name(node): node for node in self.aim.graph}
        layers = layers_of(prepared.model, plan)
        self.unknown = [name for name in plan.weights if name not in layers]
        ordered = with_folded_behind(prepared.model, plan)
        self.subgraphs = subgraphs_of(ordered, (), layers.keys())
        self.last = {t: i for i, s in enumerate(self.subgraphs) for t in s.reads}
        self.caches = floats, quantized
        self.pairs = [*zip(map(rows_of, batches), all_feeds(prepared, batches), strict=True)]
        for _, feeds in self.pairs:
            for cache in self.caches:
                for tensor, array in feeds.items():
                    cache.add(tensor, array)

    def through(self, most_layers: int) -> list[Outcome]:
        """Runs the subgraphs of so many layers; what became of every layer."""
        outcomes: list[Outcome] = []
        for index, subgraph in enumerate(self.subgraphs):
            if subgraph.layer and len(outcomes) == most_layers:
                break
            layer = self.now.layer(subgraph.layer) if subgraph.layer else None
            work = self.begin(layer, len(self.batches)) if layer else None
            if layer is None or work is None or isinstance(work, str):
                self._run_float(subgraph, None, None)
                if layer is not None:
                    outcomes.append(Outcome(self.name, layer.name, False, why=str(work)))
            else:
                self._run_float(subgraph, layer, work)
                outcomes.append(self._outcome(layer, work.proposal()))
            self._run_quantized(subgraph)
            self._drop(index)
        behind = [s.layer for s in self.subgraphs if s.layer][len(outcomes) :]
        outcomes += [
            Outcome(self.name, name, False, why=TOO_MANY.format(most_layers)) for name in behind
        ]
        return outcomes + [Outcome(self.name, n, False, why=UNKNOWN) for n in self.unknown]

    def _outcome(self, layer: Layer, proposal: LayerProposal) -> Outcome:
        before, after, why = proposal.before_db, proposal.after_db, proposal.why
        if proposal.new is None:
            return Outcome(self.name, layer.name, False, before, after, why)
        if before is None or after is None or not after > before:
            return Outcome(self.name, layer.name, False, before, after, why or NO_HELP)
        refusal = self.now.replace(layer, proposal.new)
        return Outcome(self.name, layer.name, not refusal, before, after, refusal or why)

    def _run_float(self, subgraph: Subgraph, layer: Layer | None, work: LayerWork | None) -> None:
        """Runs the subgraph in float, and shows the layer's work what it needs."""
        more = [layer.y] if layer is not None and layer.y not in subgraph.gives else []
        outputs = [*subgraph.gives, *more]
        if not outputs:
            return
        model = cut(self.aim, self.floats, subgraph, outputs)
        floats, quantized = self.caches
        with runtime.open_session(model, threads=1) as session:
            for batch in range(len(self.batches)):
                made = session.run_named({x: floats.get(x, batch) for x in session.inputs})
                if layer is not None and work is not None:
                    x = quantized.get(layer.x, batch).astype(np.float32, copy=False)
                    y = made[layer.y].astype(np.float32, copy=False)
                    work.observe(layer.seen(x, self.now.plan), y, batch)
                for tensor in subgraph.gives:
                    floats.add(tensor, made[tensor])

    def _run_quantized(self, subgraph: Subgraph) -> None:
        if not subgraph.gives:
            return
        model = cut(self.now.model, self.now.nodes, subgraph, subgraph.gives)
        write_part(model, self.now.plan)
        quantized = self.caches[1]
        with runtime.open_session(model, threads=1) as session:
            for batch in range(len(self.batches)):
                feeds = {name: quantized.get(name, batch) for name in session.inputs}
                for tensor, array in session.run_named(feeds).items():
                    quantized.add(tensor, array)

    def _drop(self, index: int) -> None:
        """Forgets what no later subgraph reads."""
        read = [tensor for tensor, last in self.last.items() if last == index]
        for cache in self.caches:
            for tensor in (tensor for tensor in read if tensor in cache):
                cache.drop(tensor)

    def judged(self, judges: Sequence[Batch]) -> Outcome:
        """Outcome at the outputs, on the batches held back and on those that judge alone."""
        plain = dataclasses.replace(self.prepared, quantized_input={}, quantized_output=())
        now = dataclasses.replace(plain, model=self.now.model)
        with (
            runtime.open_session(self.aim, threads=1) as floats,
            runtime.open_session(rewrite(plain, self.planned), threads=1) as planned,
            runtime.open_session(rewrite(now, self.now.plan), threads=1) as session,
        ):
            held = [pair for i, pair in enumerate(self.pairs) if is_held_apart(i)]
            pairs = [*held, *((rows_of(batch), batch) for batch in judges)]
            found = judgement.judgement_of(compared(pairs, floats, (planned, session)))
        if found is None or not found.signal.sum():
            return Outcome(self.name, "", True, why="no output of floats to judge by")
        lost = found.after.sum() > found.before.sum()
        why = CHANCE.format(found.after.size) if lost and not found.is_loss else ""
        return Outcome(self.name, "", not found.is_loss, found.before_db, found.after_db, why)


def compared(
    pairs: Iterable[tuple[int, Mapping[str, Array]]],
    floats: runtime.Session,
    others: Sequence[runtime.Session],
) -> Iterator[judgement.Compared]:
    """Outputs of (samples, feeds) of batches: of the float model, and of the other ones."""
    for samples, feeds in pairs:
        results = [session.run(feeds, floats.outputs) for session in (floats, *others)]
        outputs = zip(*results, strict=True)
        yield samples, [each for each in outputs if is_float(each[0])]


def is_float(array: Array) -> bool:
    """Whether it holds floats; not a sequence, nor integers."""
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def all_feeds(prepared: Prepared, batches: Sequence[Batch]) -> Iterator[Mapping[str, Array]]:
    """Inputs of every batch, with the state that the float model hands on."""
    inputs = input_specs(prepared.model, prepared.feedback.values())
    if not prepared.feedback:
        yield from batches
        return
    state = State(inputs, prepared.feedback)
    model = prepared.model if prepared.aim is None else prepared.aim
    with runtime.open_session(model, threads=1) as session:
        for batch in batches:
            feeds = state.feeds(batch)
            yield feeds
            state.keep(session.run_named(feeds))
