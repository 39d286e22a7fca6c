"""Subject of a tune: the float model, with all that does not differ from candidate to candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxq import targets
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.canonical import Canonical, canonicalize
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load, model_hash
from onnxq.graph.pixels import quantized_pixels
from onnxq.graph.portable import PortableModel
from onnxq.ort.runtime import Session, open_session
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.qconfig.quantized_input import Asked, as_quantized_input
from onnxq.samples import InputSpec, input_specs
from onnxq.samples.state import as_feedback
from onnxq.static.prepare import backend_of, prepare, prepared_with
from onnxq.static.prepared import ModelSource, Prepared
from onnxq.targets import Target
from onnxq.times import Costs
from onnxq.tuning.scoring.metric import hash_of
from onnxq.tuning.scoring.model_run import ModelRun


@dataclass(frozen=True, eq=False)
class Wishes:
    """Wishes that every candidate shares: arguments of `quantize` by their names there."""

    target: str | Target | None = None
    feedback: Mapping[str, str] = field(default_factory=dict)
    quantized_input: Mapping[str, Asked] | None = None
    quantized_output: Sequence[str] = ()
    costs: Costs | None = field(default=None, repr=False)
    file_format: str = "qdq"
    objective: Objective = Objective.SPEED

    def __str__(self) -> str:
        """All that tells these wishes from others, times of a table by their hash."""
        target = targets.resolve(self.target)
        wishes = (
            target.name,
            self.file_format,
            self.objective.value,
            target.reduce_range,
            dict(self.feedback) or None,
            self.quantized_input,
            tuple(self.quantized_output) or None,
            None if self.costs is None else f"costs {hash_of(self.costs.to_csv())}",
        )
        return ", ".join(str(wish) for wish in wishes if wish is not None)


NO_WISHES = Wishes()
MOST_BEGUN = 4
"""Mappings whose Prepared with all forms open is kept: candidates differ in named forms, and a few
nodes that are dynamic at most. Each has a graph of its own over the same weights."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A float model that is quantized again and again; it pickles, for other processes."""

    canonical: Canonical = field(repr=False)
    wishes: Wishes
    model_hash: str
    float_bytes: int
    _begun: dict[QConfigMapping, Prepared] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: ModelSource, wishes: Wishes = NO_WISHES) -> Subject:
        """The subject of a model in any form that `prepare` takes."""
        canonical = canonicalize(load(model), types_by_run)
        found = canonical.model
        return cls(canonical, wishes, model_hash(found), given_size(found))

    @property
    def default(self) -> QConfigMapping:
        """The mapping that `quantize` takes where it is given none."""
        return default_qconfig_mapping(backend_of(self.wishes.target))

    def prepared(self, mapping: QConfigMapping) -> Prepared:
        """Prepared with that mapping, as `prepare` gives it."""
        all_open = mapping.all_open()
        begun = self._begun.get(all_open)
        if begun is None:
            begun = self._prepared(all_open)
            if len(self._begun) >= MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
            self._begun[all_open] = begun
        return begun if mapping == all_open else prepared_with(begun, mapping)

    def _prepared(self, mapping: QConfigMapping) -> Prepared:
        wishes = self.wishes
        return prepare(
            self.canonical,
            mapping,
            wishes.target,
            wishes.feedback,
            quantized_input=wishes.quantized_input,
            quantized_output=wishes.quantized_output,
            costs=wishes.costs,
        )

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Inputs that samples hold, as pixels too where these are asked for; state is optional."""
        fed_back = as_feedback(self.wishes.feedback).values()
        pixels = quantized_pixels(
            self.canonical.model, as_quantized_input(self.wishes.quantized_input)
        )
        return input_specs(self.canonical.model, set(fed_back), pixels or None)

    def calibrated_inputs(self) -> tuple[InputSpec, ...]:
        """Inputs of the model that is calibrated, which takes pixels where these are asked for."""
        return self.prepared(self.default).inputs if self.wishes.quantized_input else self.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(str(value.name) for value in self.canonical.model.graph.outputs)

    def open_float(self) -> Session:
        """A session of the float model, on one thread."""
        return open_session(self.canonical.model, threads=1)

    def float_run(self, session: Session) -> ModelRun:
        """The float model in that session, as a metric runs it."""
        return ModelRun(session, self.inputs, self.inputs, self.outputs, self.wishes.feedback)

    def __reduce__(self) -> tuple[Callable[..., Subject], tuple[object, ...]]:
        """Pickles with the bytes of its model."""
        model = PortableModel.of(self.canonical.model, self.canonical.model)
        others = (self.canonical.notes, self.wishes, self.model_hash, self.float_bytes)
        return _restored, (model, *others)


def _restored(
    model: PortableModel, notes: tuple[str, ...], wishes: Wishes, known_hash: str, float_bytes: int
) -> Subject:
    """The Subject whose parts `__reduce__` gave."""
    return Subject(Canonical(model.load(), notes), wishes, known_hash, float_bytes)
