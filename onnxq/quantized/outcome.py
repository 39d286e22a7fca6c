"""Outcomes of PTQ algorithms: what each did at one place of a model, by samples held back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """A PTQ algorithm at one place of a model, kept or withdrawn.

    Attributes:
        algorithm: its name.
        place: a node or a site; empty: the outputs of the whole model.
        kept: whether the model has it.
        before_db: SQNR of the place without it, on samples that it did not see, in dB; None: it was
            not measured.
        after_db: likewise with it.
        why: it was withdrawn or could not be tried; for one that is kept, what should be known.
    """

    algorithm: str
    place: str
    kept: bool
    before_db: float | None = None
    after_db: float | None = None
    why: str = ""

    @property
    def gain_db(self) -> float | None:
        """Gain in dB; None: it was not measured."""
        if self.before_db is None or self.after_db is None:
            return None
        return self.after_db - self.before_db

    def __str__(self) -> str:
        place = f"'{self.place}'" if self.place else "the outputs"
        told = "" if self.gain_db is None else f" {self.before_db:.1f} -> {self.after_db:.1f} dB"
        state = "" if self.kept else " withdrawn" if told else " not tried"
        why = f": {self.why}" if self.why else ""
        return f"{self.algorithm} of {place}{state}{told}{why}"


def summaries(outcomes: tuple[Outcome, ...]) -> list[str]:
    """A sentence per algorithm: at how many places it was kept, and what the outputs gain."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.algorithm, []).append(outcome)
    return [_summary(name, every) for name, every in found.items()]


def _summary(name: str, outcomes: list[Outcome]) -> str:
    places = [outcome for outcome in outcomes if outcome.place]
    kept = sum(outcome.kept for outcome in places)
    wholes = [outcome for outcome in outcomes if not outcome.place]
    if not places and len(wholes) == 1 and wholes[0].gain_db is None and wholes[0].why:
        return f"PTQ algorithm '{name}': not tried: {wholes[0].why}"
    said = f"PTQ algorithm '{name}': kept at {kept} of {len(places)} places"
    for whole in wholes:
        if whole.gain_db is not None:
            is_kept = whole.kept and (kept or not places)
            moved = "outputs" if is_kept else "outputs would go"
            said += (
                f"; {moved} {whole.before_db:.1f} -> {whole.after_db:.1f} dB on samples held back"
            )
        if whole.why:
            said += f"; {whole.why}"
    return said
