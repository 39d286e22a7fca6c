"""Check: what a finished model is tried on, and what it has to keep there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from onnxq.errors import CalibrationError
from onnxq.samples import Samples, open_samples
from onnxq.samples.excerpt import check_every, held_apart
from onnxq.samples.ignored import check_ignored
from onnxq.static.arguments import check_decibels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.samples import InputSpec


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Samples that a finished model is tried on, and the bound that its outputs keep there.

        onnxq.quantize(model, samples, check=onnxq.Check(hold_apart=4, min_sqnr_db=30))

    Where a check is asked for, samples alone mean `Check(samples)`.

    Attributes:
        samples: that the model was not made from; a source alone is read as those are that it was
            made from. None: a few of these; made-up inputs where there are none.
        hold_apart: one batch of the samples in so many is not calibrated on, and is what the model
            is tried on; None: none.
        min_sqnr_db: bound on every float output, in dB; None: none.
        runs: the model is run; else it has no verdict.

    Raises:
        QConfigError: hold_apart is no whole number from 2, or the bound no number.
        CalibrationError: samples and hold_apart.
    """

    samples: object = None
    hold_apart: int | None = None
    min_sqnr_db: float | None = None
    runs: bool = True

    CALIBRATION: ClassVar[Check]
    """A few of the samples that it was calibrated on; made-up inputs where there are none."""
    NONE: ClassVar[Check]
    """The model is not run, and has no verdict. For operators that are not registered here."""

    def __post_init__(self) -> None:
        check_decibels(self.min_sqnr_db)
        if self.hold_apart is None:
            return
        check_every(self.hold_apart)
        if self.samples is not None:
            raise CalibrationError(
                "check: hold_apart checks on some of the samples: give no others to check on."
            )

    @classmethod
    def of(cls, given: object, like: Samples | None = None) -> Check:
        """A Check as it is, or one on samples.

        Args:
            given: a Check, Samples or a source.
            like: samples that a source alone is read like.

        Raises:
            CalibrationError: it is None.
        """
        if given is None:
            raise CalibrationError(
                "check is None; wanted samples, onnxq.Check.CALIBRATION, or onnxq.Check.NONE."
            )
        check = given if isinstance(given, Check) else Check(given)
        if check.samples is None:
            return check
        return replace(check, samples=Samples.of(check.samples, like))

    @property
    def unseen(self) -> Samples | None:
        """Samples that the model was not made from; None: there are none."""
        return None if self.samples is None else Samples.of(self.samples)

    def held_apart(self, samples: Samples, inputs: Sequence[InputSpec]) -> tuple[Samples, Check]:
        """(samples to calibrate on, the check on the others), where some are to be held apart.

        Args:
            samples: all of them.
            inputs: of the model.

        Raises:
            CalibrationError: there are none that could be held apart, or too few.
        """
        if self.hold_apart is None:
            return samples, self
        opened = open_samples(samples, inputs)
        check_ignored(samples)
        others, apart = held_apart(opened, self.hold_apart)
        check = replace(self, hold_apart=None, samples=replace(samples, source=apart))
        return replace(samples, source=others), check


Check.CALIBRATION = Check()
Check.NONE = Check(runs=False)
