"""Values of the plan of weights in groups: the request, a node's decision, and all of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxq.core.brief import brief
from onnxq.dynamic.dynamic_decision import DynamicDecision, QuantizeDynamic
from onnxq.operator import Float, Precision
from onnxq.page.card import card_of, counts
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.reasons import IsEmbedding, StoredGroupwise


@dataclass(frozen=True, slots=True)
class WeightRequest:
    """Wishes of the user for all linear layers of a model.

    Attributes:
        embeddings: precision of embeddings, and of linear layers whose weight is one; None: float.
    """

    spec: GroupSpec = field(default_factory=GroupSpec)
    method: Method = Method.HQQ
    exclude: tuple[str, ...] = ()
    embeddings: GroupSpec | None = None


@dataclass(frozen=True, slots=True)
class Groupwise:
    """A linear layer, or a lookup, whose weight is stored in groups.

    Attributes:
        tensor: name of the float initializer.
        inputs_first: the initializer is (inputs, outputs); else (outputs, inputs).
        outputs: rows of the weight as it is stored.
        inputs: numbers that are summed; of a lookup, those of a row.
        embedding: name of the embedding whose integers these are; empty: the weight has its own.
        tied: whether a linear layer and a lookup share the integers.
        given: whether the integers are those that the file has already.
        part_of: name of the mixture of experts that the layer is a part of; empty: of none.
    """

    spec: GroupSpec
    method: Method
    slot: int
    tensor: str
    inputs_first: bool
    outputs: int
    inputs: int
    embedding: str = ""
    tied: bool = False
    given: bool = False
    part_of: str = ""

    @property
    def stored_as(self) -> str:
        """Key of the integers: nodes that agree in it read the same ones."""
        side = "inputs first" if self.inputs_first and not self.embedding else "outputs first"
        return f"{self.embedding or self.tensor}, {side}: {self.spec.words}, {self.method.value}"

    @property
    def is_foreign(self) -> bool:
        """Whether no operator of ai.onnx reads the integers: of a lookup, or of experts."""
        return bool(self.embedding or self.part_of)

    @property
    def how(self) -> StoredGroupwise:
        """The precision of the weight, and how it is found."""
        return StoredGroupwise(self.spec.words, "as given" if self.given else self.method.value)


WeightDecision = Groupwise | Float


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Every decision; what carries it out decides nothing."""

    decisions: Mapping[str, WeightDecision]
    notes: tuple[str, ...] = ()

    __repr__ = brief

    def _repr_html_(self) -> str:
        ways = Counter(
            "float" if isinstance(d, Float) else d.how.words for d in self.decisions.values()
        )
        return card_of(self, counts("weights", dict(ways.most_common())))

    @property
    def quantized(self) -> dict[str, Groupwise]:
        """Node name -> decision of the nodes whose weights are stored in groups."""
        return {n: d for n, d in self.decisions.items() if isinstance(d, Groupwise)}

    @property
    def dynamic_decisions(self) -> dict[str, DynamicDecision]:
        """Node name -> decision in the terms of dynamic quantization, for reports."""
        groupwise = Precision.WEIGHT_ONLY_GROUPWISE
        floats = {name: d for name, d in self.decisions.items() if isinstance(d, Float)}
        return floats | {n: QuantizeDynamic(groupwise, d.how, ()) for n, d in self.nodes.items()}

    @property
    def nodes(self) -> dict[str, Groupwise]:
        """Node of the model -> decision; a mixture of experts has that of one of its layers."""
        return {d.part_of or name: d for name, d in self.quantized.items()}

    @property
    def mixtures(self) -> set[str]:
        """Names of the mixtures of experts whose weights are stored in groups."""
        return {d.part_of for d in self.quantized.values() if d.part_of}

    @property
    def linear_layers(self) -> WeightPlan:
        """The plan without embeddings, whose integers are not chosen by what layers see."""
        left: dict[str, WeightDecision] = {
            name: Float(IsEmbedding()) if isinstance(d, Groupwise) and d.embedding else d
            for name, d in self.decisions.items()
        }
        return dataclasses.replace(self, decisions=left)

    def with_embeddings_of(self, other: WeightPlan) -> WeightPlan:
        """The plan with another one's decisions on embeddings."""
        embeddings = {n: d for n, d in other.quantized.items() if d.embedding}
        return dataclasses.replace(self, decisions={**self.decisions, **embeddings})

    def leaving(self, floats: Mapping[str, Float]) -> WeightPlan:
        """The plan with these nodes left in float; a mixture of experts as a whole."""
        whole = {name: d.part_of for name, d in self.quantized.items() if d.part_of}
        named = {whole.get(name, name): why for name, why in floats.items()}
        left = {
            name: d
            for name, d in self.decisions.items()
            if isinstance(d, Float) or d.part_of not in named
        }
        return dataclasses.replace(self, decisions={**left, **named})

    def with_specs(self, specs: Mapping[str, GroupSpec | Float]) -> WeightPlan:
        """The plan with other specs for the nodes named, or these left in float."""
        changed: dict[str, WeightDecision] = dict(self.decisions)
        for name, spec in specs.items():
            if isinstance(spec, GroupSpec):
                decision = self.quantized[name]
                given = decision.given and spec == decision.spec
                changed[name] = dataclasses.replace(decision, spec=spec, given=given)
        floats = {name: spec for name, spec in specs.items() if isinstance(spec, Float)}
        return dataclasses.replace(self, decisions=changed).leaving(floats)
