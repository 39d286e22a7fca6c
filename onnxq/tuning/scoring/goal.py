"""Goal of a search: bounds that a model has to keep, and what to make best within them."""

import math
from collections.abc import Callable, Sequence  # read at run time by `plain`
from dataclasses import dataclass
from numbers import Integral, Real

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import QConfigError, kind_of, member
from onnxq.page.card import card_of
from onnxq.qconfig import QConfigMapping
from onnxq.tuning.defaults import IMPROVE, MOST_RUNS
from onnxq.tuning.scoring.metric import Metric, as_metric
from onnxq.tuning.scoring.score import Score
from onnxq.weights import wanted


@dataclass(frozen=True)
class Goal:
    """Bounds on a quantized model, an aim within them, and what the search may spend.

    Attributes:
        min_sqnr_db: bound on every float output, dB; None: none.
        max_drop: bound on the metric's loss against the float model, in its unit, at least 0; None:
            none. It needs a metric that has a value for the float model; SQNR has none.
        metric: "sqnr" (the default), "top1", "bits", "FILE.py:function", or function(run, samples)
            that gives a number, higher is better (see onnxq.tuning.scoring.metric).
        improve: PTQ algorithms that the search may use (see onnxq.weights); they are tried before
            any precision is given up, as they cost no time at run time.
        max_time: bound on the time, as a share of the float model's: 1 is "not slower"; None: none.
        objective: an Objective or its name.
        max_runs: models that may be quantized and run over the search samples. Passes of the
            sensitivity over fewer samples count by their share.
        max_seconds: wall time after which no change is tried any more, counted from behind the
            calibration and the times; half of it at most is for the sensitivity. The model that a
            search begins with is measured whatever it takes. None: no bound.
    Raises:
        QConfigError: a bound is no number or out of range, the objective or an algorithm is not
            known, or the metric is none.
    """

    min_sqnr_db: float | None = None
    max_drop: float | None = None
    max_time: float | None = None
    objective: Objective = Objective.SPEED
    max_runs: int = MOST_RUNS
    max_seconds: float | None = None
    metric: Metric | str | Callable[..., object] | None = None
    improve: Sequence[str] = IMPROVE

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", member(Objective, self.objective, "objective"))
        object.__setattr__(self, "metric", as_metric(self.metric))
        object.__setattr__(
            self, "improve", QConfigMapping(None).set_improve(self.improve).algorithms
        )
        wanted(self.improve)
        _check_number("min_sqnr_db", self.min_sqnr_db, -math.inf)
        _check_number("max_drop", self.max_drop, 0.0)
        _check_number("max_time", self.max_time, 0.0)
        _check_number("max_seconds", self.max_seconds, 0.0)
        if not isinstance(self.max_runs, Integral) or isinstance(self.max_runs, bool):
            raise QConfigError(
                f"goal: max_runs is {kind_of(self.max_runs)}; wanted a whole number from 1."
            )
        if self.max_runs < 1:
            raise QConfigError(f"goal: max_runs is {self.max_runs}; wanted at least 1.")
        self._make_plain()
        if self.max_time == 0:
            raise QConfigError("goal: max_time is 0, which no model reaches; 1 is float's time.")

    def _make_plain(self) -> None:
        """Makes Python's numbers of NumPy's, which files and words do not show as numbers."""
        object.__setattr__(self, "max_runs", int(self.max_runs))
        for name in ("min_sqnr_db", "max_drop", "max_time", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int | float):
                object.__setattr__(self, name, float(value))

    @property
    def by(self) -> Metric:
        """The metric."""
        return as_metric(self.metric)

    @property
    def bounds_accuracy(self) -> bool:
        """Whether it has a bound on accuracy."""
        return self.min_sqnr_db is not None or self.max_drop is not None

    def missed(self, score: Score, float_metric: float) -> tuple[str, ...]:
        """Bounds that a score does not keep, in words; empty where it keeps all of them.

        Args:
            score: of a quantized model.
            float_metric: the float model's, on the same samples.
        """
        found = []
        if self.min_sqnr_db is not None and not score.worst_db >= self.min_sqnr_db:
            few = f"{score.worst_db:.2f} dB of {self.min_sqnr_db:g} dB"
            found.append(score.incomparable or few)
        drop = float_metric - score.metric
        if self.max_drop is not None and not drop <= self.max_drop:
            found.append(f"the metric drops by {drop:.5g} of at most {self.max_drop:g}")
        if self.max_time is not None and score.time_beyond(self.max_time) > 0:
            ratio = "unknown" if score.time_ratio is None else f"{score.time_ratio:.3f}"
            found.append(f"time over float's: {ratio}, of at most {self.max_time:g}")
        return tuple(found)

    def __str__(self) -> str:
        bounds = [
            text
            for text, bound in (
                (f"at least {self.min_sqnr_db} dB", self.min_sqnr_db),
                (f"a metric at most {self.max_drop} below float's", self.max_drop),
                (f"at most {self.max_time} of float's time", self.max_time),
            )
            if bound is not None
        ]
        aim = {
            Objective.SPEED: "as fast",
            Objective.SIZE: "as small",
            Objective.ACCURACY: "as accurate",
        }
        within = f"{' and '.join(bounds)}, and " if bounds else ""
        limit = "" if self.max_seconds is None else f" and {self.max_seconds:g} s"
        runs = "1 run" if self.max_runs == 1 else f"{self.max_runs} runs"
        return f"{within}{aim[self.objective]} as it gets in {runs}{limit}"


def _check_number(name: str, value: object, least: float) -> None:
    """Passes None and finite numbers from `least` on."""
    if value is None:
        return
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise QConfigError(f"goal: {name} is {value!r}; wanted a finite number, or None.")
    if value < least:
        raise QConfigError(f"goal: {name} is {float(value):g}; wanted at least {least:g}.")
