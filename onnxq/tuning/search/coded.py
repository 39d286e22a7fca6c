"""Mappings in which some groups of a model are in integers, and all others in float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import NodeForm
from onnxq.tuning.search.config_changes import with_form
from onnxq.tuning.search.layers import Layers

if TYPE_CHECKING:
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.search.quantization_groups import QuantizationGroup


@dataclass(frozen=True, slots=True)
class QuantizedAlone:
    """Mappings in which groups are in their forms with the most integers, alone or together.

    Attributes:
        asked: what the user wants.
        groups: that may be moved.
    """

    asked: QConfigMapping
    groups: tuple[QuantizationGroup, ...]

    def alone(self, layers: Layers) -> QConfigMapping:
        """The mapping in which all groups but those of the layers are in float."""
        mapping, inside = self.asked, {group.anchor.name for group in layers.groups}
        for group in self.groups:
            is_quantized = group.anchor.name in inside
            mapping = with_form(
                mapping, group, group.lowest_precision if is_quantized else NodeForm.FLOAT
            )
        return mapping

    @property
    def together(self) -> QConfigMapping:
        """The mapping in which no group is in float."""
        return self.alone(Layers(self.groups))
