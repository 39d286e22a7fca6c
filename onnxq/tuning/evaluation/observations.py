"""Statistics for every candidate of a tune: observed once, and once more where one needs others."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from onnxq.static.calibrate import calibrate

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.observers import ObserverSpec
    from onnxq.samples import Batches
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics


class Observations:
    """Statistics of the samples, as `calibrate` gives them to each candidate.

    Candidates that observe the same tensors share a calibration. So do those that name forms alone:
    a node of form FLOAT is observed all the same, one whose entry is None is not. ONNX Runtime
    fuses other nodes where other tensors are outputs, and numbers differ in their last bit: hence
    these have a calibration of their own. A candidate with another observer asks for one more, in
    which it sees every tensor that the replaced one was for: changes of one type share that. So
    does one that watches what another only observes.

    Where numbers are estimates, that last bit is worth no calibration: `covering` shares one.

    Args:
        samples: to calibrate on.
        statistics: of an earlier calibration on them; None: there is none yet.

    Attributes:
        calibrations: done so far.
    """

    def __init__(self, samples: Batches, statistics: Statistics | None = None) -> None:
        self._samples = samples
        self._seen: dict[tuple[str, frozenset[str]], list[Statistics]] = {}
        self._cover: Prepared | None = None
        self.calibrations = 0
        if statistics is not None:
            tensors = frozenset((*statistics.observers, *statistics.probed))
            self._seen[statistics.model_hash, tensors] = [statistics]

    def covering(self, prepared: Prepared) -> Observations:
        """Observations in which what observes tensors of this Prepared alone has its calibration.

        Numbers are those of `calibrate` but for their last bit.
        """
        made = Observations(self._samples)
        made._seen, made._cover = self._seen, prepared
        return made

    def of(self, prepared: Prepared) -> Statistics:
        """Statistics of the observers that the Prepared asks for; as `calibrate` finds them.

        Raises:
            CalibrationError: unusable samples.
        """
        observed = prepared.observed
        calibrated = self._cover if self._is_covered(prepared) else prepared
        assert calibrated is not None, "it covers"
        every = {**calibrated.observed, **observed}
        tensors = frozenset((*every, *calibrated.probed))
        seen = self._seen.setdefault((prepared.model_hash, tensors), [])
        if not seen:
            seen.append(self._calibrated(calibrated))
        holders = [_holder(seen, *item) for item in observed.items()]
        watchers = [_watcher(seen, *item) for item in prepared.probed.items()]
        if None in holders or None in watchers:
            seen.append(self._calibrated(_Observed(calibrated, _with_their_like(seen, every))))
        return _joined(seen, observed, prepared.probed)

    def _is_covered(self, prepared: Prepared) -> bool:
        cover = self._cover
        return (
            cover is not None
            and cover.model_hash == prepared.model_hash
            and prepared.probed.items() <= cover.probed.items()
            and prepared.observed.keys() <= cover.observed.keys()
        )

    def beside(self, prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        """The statistics, as a StaticJob asks for them; nothing is added to the excerpt."""
        return self.of(prepared), excerpt

    def _calibrated(self, prepared: Prepared | _Observed) -> Statistics:
        self.calibrations += 1
        return calibrate(prepared, self._samples)


def _holder(seen: list[Statistics], tensor: str, spec: ObserverSpec) -> Statistics | None:
    """The first statistics with that observer of the tensor."""
    found = (s for s in seen if tensor in s.observers and s.observers[tensor].spec == spec)
    return next(found, None)


def _watcher(seen: list[Statistics], tensor: str, spec: ObserverSpec) -> Statistics | None:
    """The first statistics in which that observer watches the tensor."""
    found = (s for s in seen if tensor in s.probed and s.probed[tensor].spec == spec)
    return next(found, None)


def _with_their_like(
    seen: list[Statistics], observed: Mapping[str, ObserverSpec]
) -> dict[str, ObserverSpec]:
    """The observers that nobody has yet, for all tensors of the observers that they replace."""
    before = {tensor: observer.spec for tensor, observer in seen[0].observers.items()}
    lacking = {t: spec for t, spec in observed.items() if _holder(seen, t, spec) is None}
    replaced = {before[t]: spec for t, spec in lacking.items() if t in before}
    return {
        tensor: lacking.get(tensor, replaced.get(before.get(tensor, spec), spec))
        for tensor, spec in observed.items()
    }


def _joined(
    seen: list[Statistics],
    observed: Mapping[str, ObserverSpec],
    probed: Mapping[str, ObserverSpec],
) -> Statistics:
    """The statistics with each tensor's observer taken from where it is of that spec."""
    first = seen[0]
    holders = {
        t: each for t, spec in observed.items() if (each := _holder(seen, t, spec)) is not None
    }
    watchers = {
        t: each for t, spec in probed.items() if (each := _watcher(seen, t, spec)) is not None
    }
    assert (len(holders), len(watchers)) == (len(observed), len(probed)), "all were calibrated"
    is_first = all(each is first for each in (*holders.values(), *watchers.values()))
    if is_first and len(holders) == len(first.observers):
        return first
    not_finite = {t: each.not_finite[t] for t, each in holders.items() if t in each.not_finite}
    return replace(
        first,
        observers=MappingProxyType({t: each.observers[t] for t, each in holders.items()}),
        counts=MappingProxyType({t: each.counts[t] for t, each in holders.items()}),
        not_finite=MappingProxyType(dict(sorted(not_finite.items()))),
        probed=MappingProxyType({t: each.probed[t] for t, each in watchers.items()}),
    )


class _Observed:
    """A Prepared with other observers of the same tensors, as calibration reads one."""

    def __init__(self, prepared: Prepared, observed: Mapping[str, ObserverSpec]) -> None:
        self.model: ir.Model = prepared.model
        self.model_hash = prepared.model_hash
        self.observed = observed
        self.probed = prepared.probed
        self.feedback = prepared.feedback
