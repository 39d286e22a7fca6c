"""Inputs of a validation run: one look on ONNX Runtime before the file takes its name.

They are a few of the calibration samples, samples to check on, or made-up inputs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import CalibrationError, LimitError, ModelError, UnsupportedError, first_line
from onnxq.ort import runtime
from onnxq.quantized.verdict import InputSource
from onnxq.samples import as_taken, input_specs
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.made_up import random_batch

Batch = Mapping[str, Array]


@dataclass(frozen=True)
class Validation:
    """Inputs that a quantized model is tried on, and the float model beside it.

    Attributes:
        samples_in_all: that the batches were chosen from; None: these are all.
        whole: batches in their place, where the float model does not run on these: on a part of
            one, or on sizes that were assumed.
        work: CPU time since the work began, of which runs for their time alone may take a share.
        times_made_up: both models are timed on made-up inputs, too.
    """

    source: ir.Model
    input_source: InputSource
    batches: Iterable[Batch]
    samples_in_all: int | None = None
    feedback: Mapping[str, str] = field(default_factory=dict)
    work: Stopwatch = field(default_factory=Stopwatch)
    whole: Iterable[Batch] = ()
    times_made_up: bool = False

    @property
    def has_samples(self) -> bool:
        """Whether outputs can be compared with the float model's."""
        return self.input_source in HAVE_SAMPLES

    @property
    def is_beside_float(self) -> bool:
        """Whether the float model runs, too: to compare outputs, or for the times alone."""
        timed = self.times_made_up and self.input_source is InputSource.MADE_UP
        return self.has_samples or timed


HAVE_SAMPLES = (InputSource.CALIBRATION, InputSource.NOT_FITTED, InputSource.UNSEEN)
REFUSALS = (ModelError, CalibrationError, LimitError)
"""Errors of a session whose model ONNX Runtime does not open or run."""


def on_excerpt(
    source: ir.Model, excerpt: Excerpt, feedback: Mapping[str, str], work: Stopwatch
) -> Validation:
    """A Validation on some of the samples that were seen; on made-up inputs where none was."""
    chosen = excerpt.chosen()
    if not chosen:
        return on_made_up_inputs(source, work)
    made = InputSource.CALIBRATION
    return Validation(source, made, chosen, excerpt.samples, feedback, work, whole=excerpt.whole())


class RefusalError(ModelError):
    """ONNX Runtime does not run a quantized model.

    Attributes:
        feeds: the batch that it does not run on; None: it does not even open it.
    """

    def __init__(self, error: Exception, feeds: Batch | None) -> None:
        self.reason = reason_of(error)
        self.feeds = feeds
        super().__init__(f"ONNX Runtime does not run the quantized model: {self.reason}")


def reason_of(error: Exception) -> str:
    """The first line of what ONNX Runtime said, or which bound was passed."""
    if isinstance(error, LimitError):
        return first_line(error)
    return first_line(error.__cause__ or error)


def on_made_up_inputs(
    source: ir.Model,
    work: Stopwatch | None = None,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> Validation:
    """A Validation on random numbers, or on opening alone where inputs cannot be made up.

    Args:
        source: canonical float model.
        work: as of a Validation; None: it begins now.
        sizes: value name -> sizes at which both models are timed; None: they are not.
    """
    begun, specs, is_timed = work or Stopwatch(), input_specs(source), sizes is not None
    expected = tuple(replace(s, shape=(sizes or {}).get(s.name, s.shape)) for s in specs)
    try:
        batch = random_batch(expected)
        ones = (random_batch(specs),) if expected != specs else ()
    except UnsupportedError:  # sequences, or too large
        return Validation(source, InputSource.NONE, (), work=begun)
    return Validation(
        source, InputSource.MADE_UP, (batch,), work=begun, whole=ones, times_made_up=is_timed
    )


def refusal(model: ir.Model, feeds: Batch | None) -> str:
    """ONNX Runtime's words on why it does not run the model; the empty string where it does."""
    try:
        with runtime.open_session(model, threads=1) as session:
            if feeds is not None:
                session.run(as_taken(feeds, input_specs(model)))
    except REFUSALS as error:
        return reason_of(error)
    return ""
