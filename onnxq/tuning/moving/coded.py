"""Mappings in which some units of a model are in integers, and all others in float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.moving.kinds import Alike
from onnxq.tuning.moving.moves import with_form

if TYPE_CHECKING:
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.moving.units import Unit


@dataclass(frozen=True, slots=True)
class CodedMappings:
    """Mappings in which units are in their forms with the most integers, alone or together.

    Attributes:
        asked: what the user wants.
        units: that may be moved.
    """

    asked: QConfigMapping
    units: tuple[Unit, ...]

    def alone(self, group: Alike) -> QConfigMapping:
        """The mapping in which all units but those of the group are in float."""
        mapping, inside = self.asked, {unit.anchor.name for unit in group.units}
        for unit in self.units:
            is_coded = unit.anchor.name in inside
            mapping = with_form(mapping, unit, unit.coded if is_coded else Precision.FLOAT)
        return mapping

    @property
    def together(self) -> QConfigMapping:
        """The mapping in which no unit is in float."""
        return self.alone(Alike(self.units))
