"""Check: what a finished model is tried on, and what it has to keep there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from onnxq.errors import CalibrationError, QConfigError
from onnxq.quantized.output_verdict import LOW_SQNR_DB
from onnxq.samples import InputSpec, Samples, open_samples
from onnxq.samples.excerpt import HANDFUL, check_every, every_by_itself, held_apart
from onnxq.samples.ignored import check_ignored
from onnxq.static.arguments import check_bound, check_decibels


@dataclass(frozen=True, slots=True)
class Repair:
    """Bounds of a repair: a search for something better, where a verdict is low.

    Attributes:
        floor_db: an output, or a part of one, below so many dB is to be repaired.
        max_seconds: wall time of the search; None: twice the CPU time of what came before it.
    Raises:
        QConfigError: a bound is no number, or no time.
    """

    floor_db: float = LOW_SQNR_DB
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_decibels(self.floor_db)
        check_bound("max_seconds", self.max_seconds)

    @classmethod
    def of(cls, text: str) -> Repair | None:
        """The repair that the command line names: "off" (None), "20dB", "30s", "20dB,30s".

        Raises:
            QConfigError: it names none.
        """
        if text == "off":
            return None
        found = cls()
        for part in text.lower().split(","):
            number = part.strip().removesuffix("db").removesuffix("s")
            try:
                value = float(number)
            except ValueError:
                value = float("nan")
            if part.strip().endswith("db"):
                found = replace(found, floor_db=value)
            elif part.strip().endswith("s"):
                found = replace(found, max_seconds=value)
            else:
                raise QConfigError(
                    f"repair: '{text}'; wanted off, a floor such as 20dB, a time such as 30s, or "
                    "both: 20dB,30s."
                )
        return found


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
        repair: what is tried of `quantize` where the verdict is low; None: nothing.
        runs: the model is run; else it has no verdict.
    Raises:
        QConfigError: hold_apart is no whole number from 2, or the bound no number.
        CalibrationError: samples and hold_apart.
    """

    samples: object = None
    hold_apart: int | None = None
    min_sqnr_db: float | None = None
    repair: Repair | None = Repair()
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

    def held_apart_by_itself(
        self, samples: Samples, inputs: Sequence[InputSpec], least: int = HANDFUL
    ) -> tuple[Samples, Check]:
        """This check with samples held apart, where nobody named any and there are as many as that.

        Args:
            samples: all of them.
            inputs: of the model.
            least: batches from which on some are held apart: what an algorithm fits tells nothing.
        """
        is_named = self.samples is not None or self.hold_apart is not None
        if is_named or not self.runs or samples.is_one_shot or samples.feedback:
            return self.held_apart(samples, inputs)
        count = open_samples(samples, inputs).count
        every = None if count is None else every_by_itself(count, least)
        return replace(self, hold_apart=every).held_apart(samples, inputs)


Check.CALIBRATION = Check()
Check.NONE = Check(runs=False)
