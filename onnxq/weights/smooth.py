"""SmoothQuant: divides channels of a linear layer's input by scales, multiplies the weight's rows.

`smoothing` has the derivation, and chooses each site's exponent by measured error. What takes the
scales, `smoothing_sites` finds: the normalization or weight ahead, at no cost, or a Mul.

Sites are judged together, in the whole flow, calibrated and planned as asked for: nodes that 8 bits
could not hold may come back to integers. Tried are all sites, half of those that bring nodes back,
and those alone whose layers were in integers anyway; none that have more noise than these had. What
loses least at the outputs, on samples held apart, stays if it gains more than chance explains
(onnxq.weights.judgement), and if no layer leaves integers for it.

Where all biases are corrected behind, and one model was tried, a gain in sum is enough: each site
was judged by thousands of rows, and the mean error, which is luck, is gone. Where nothing is kept
so, smoothing is tried once more as if it were alone: other exponents may keep layers in integers.
benchmarks/results/improve.md has what `smooth, bias` gains on samples that nothing had seen.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxq.core.threads import workers
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.prequantized_weights import count_prequantized
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float, Precision
from onnxq.quantized.outcome import Outcome
from onnxq.samples import Batches
from onnxq.static.choosing.proposals import Proposal, Proposals, open_entry
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.weights.algorithm import EqualModel, ModelAlgorithm, register
from onnxq.weights.judgement import too_few
from onnxq.weights.smoothing import SiteChoice, SiteInput, outliers_cost, site_choices, site_inputs
from onnxq.weights.smoothing_run import NO_SMOOTHING, Flow, SmoothingRun, in_integers, validation_of
from onnxq.weights.smoothing_sites import SmoothingSite, sites_of

NO_SITES = "the model has no linear layer whose input could be smoothed"


MOST_SITES = 256
"""Sites of a model that is smoothed by default, at most; each takes some 50 ms, however small."""
STORED = "{} of the weights that the file stores as integers get other integers by smoothing"
TOO_MANY = "it has {} sites, more than {}: `--improve smooth` tries them all the same"


@register
class Smooth(ModelAlgorithm):
    """SmoothQuant, its exponent chosen per site by measured error."""

    name = "smooth"

    def improve(
        self, prepared: Prepared, samples: Batches, objective: Objective = Objective.SPEED
    ) -> EqualModel:
        """SmoothingSite by site, then as a whole; see the module."""
        flow = Flow.of(prepared, samples, objective)
        return smoothed(flow, self.name, sites_of(prepared, objective), NO_SITES)


def smoothed_for_outliers(
    prepared: Prepared, samples: Batches, objective: Objective
) -> EqualModel | None:
    """The model smoothed where outlying channels cost it much; None: they do not."""
    sites = sites_of(prepared, objective)
    if len(sites) > MOST_SITES:
        why = TOO_MANY.format(len(sites), MOST_SITES)
        return EqualModel(prepared.model, (Outcome(Smooth.name, "", False, why=why),))
    flow = Flow.of(prepared, samples, objective) if sites else None
    if flow is None or too_few(flow.batches):
        return None
    inputs = site_inputs(flow, sites)
    return _smoothed(flow, Smooth.name, inputs) if outliers_cost(flow, inputs) else None


CHANCE = "{} samples cannot tell this gain from chance"
LEAVES = "linear layers that would leave integers: {}, '{}' among them"


def smoothed(flow: Flow, name: str, sites: Sequence[SmoothingSite], none: str) -> EqualModel:
    """The model with factors at those of the sites where they help."""
    if why := too_few(flow.batches) if sites else none:
        return EqualModel(flow.prepared.model, (Outcome(name, "", False, why=why),))
    return _smoothed(flow, name, site_inputs(flow, sites))


def _smoothed(flow: Flow, name: str, inputs: Mapping[SmoothingSite, SiteInput]) -> EqualModel:
    quiet = np.errstate(over="ignore", invalid="ignore")  # numbers near float32's end: no gain
    with workers(1), quiet:  # sums are the same on every machine with one BLAS thread
        made = _judged(flow, name, site_choices(flow, inputs))
        if made.outcomes[-1].kept or not flow.corrects_biases:
            return made
        alone = flow.asking(name)
        by_itself = _judged(alone, name, site_choices(alone, inputs))
        return by_itself if by_itself.outcomes[-1].kept else made


def _judged(flow: Flow, name: str, choices: Sequence[SiteChoice]) -> EqualModel:
    """The model with those sites that lose least at the outputs together."""
    factors = {c.site: c.factors for c in choices if c.factors is not None}
    if not factors:
        return EqualModel(flow.prepared.model, tuple(c.outcome(name, kept=False) for c in choices))
    planned = flow.planned()
    plain = validation_of(flow, NO_SMOOTHING, planned.qconfig)
    stayed = [s for s in factors if any(map(plain.runs_in_integers, s.readers))]
    ordered = sorted(choices, key=lambda c: -c.after_db)
    back = [c.site for c in ordered if c.site in factors and c.site not in stayed]
    tried: list[SmoothingRun] = []
    counts = sorted({0, len(back) // 2, len(back)}, reverse=True)
    for number, count in enumerate(counts, 1):
        sites = {site: factors[site] for site in (*stayed, *back[:count])}
        if not sites or (count and stayed and _adds_noise(choices, stayed, sites)):
            continue
        divided = [layer for site in sites for layer in site.readers]
        tried.append(validation_of(flow, sites, in_integers(flow, planned, divided)))
        is_gain = tried[-1].compared_with(plain).is_gain(number)
        if is_gain and plain.integers <= tried[-1].integers:
            least = tried[-1]
            break
    else:
        least = min(tried, key=lambda t: (len(plain.integers - t.integers), t.errors.sum()))
    is_corrected = all(c.is_corrected for c in choices if c.site in least.sites)
    found, lost, why = least.compared_with(plain), plain.integers - least.integers, ""
    is_sure = found.is_gain(number)
    if lost:
        why = LEAVES.format(len(lost), min(lost))
    elif found.is_less and not is_sure:
        why = CHANCE.format(found.after.size)
    is_enough = is_sure or (is_corrected and number == 1)
    kept = is_enough and found.is_less and not lost
    whole = Outcome(name, "", kept, found.before_db, found.after_db, why)
    best = least if whole.kept else plain
    outcomes = [c.outcome(name, kept=c.site in best.sites) for c in choices]
    layers = [layer for choice in choices for layer in choice.site.readers]
    more = sum(map(best.runs_in_integers, layers)) - sum(map(plain.runs_in_integers, layers))
    if more:
        whole = replace(whole, why=f"{more} more of {len(layers)} linear layers run in integers")
    if stored := count_prequantized(flow.prepared.model) - count_prequantized(best.model):
        whole = replace(whole, why=f"{whole.why}; {STORED.format(stored)}".removeprefix("; "))
    naming = _left_by_data(flow.prepared, planned, choices, best.sites)
    return EqualModel(best.model, (*outcomes, whole), naming if best.sites else {})


def _adds_noise(
    choices: Sequence[SiteChoice], stayed: Sequence[SmoothingSite], sites: Collection[SmoothingSite]
) -> bool:
    """Whether all these sites have more noise together than those that stayed had as they were."""
    before = sum(10 ** (-c.before_db / 10) for c in choices if c.site in stayed)
    return before < sum(10 ** (-c.after_db / 10) for c in choices if c.site in sites)


def _left_by_data(
    prepared: Prepared,
    planned: Plan,
    choices: Sequence[SiteChoice],
    divided: Collection[SmoothingSite],
) -> Proposals:
    """Precisions of layers that the data leave in float: integers cannot hold their own input.

    Smoothing other tensors does not make it fit, though it stands out less among what is left, or
    more: so they stay where they are until their own input is smoothed.
    """
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    naming: dict[str, Proposal] = {}
    sites = (choice.site for choice in choices if choice.site not in divided)
    for name in (name for site in sites for name in site.readers):
        entry, decision = open_entry(nodes[name], prepared.qconfig), planned.decisions[name]
        if entry is not None and isinstance(decision, Float):
            naming[name] = Proposal(replace(entry, precision=Precision.FLOAT), decision.reason)
    return naming
