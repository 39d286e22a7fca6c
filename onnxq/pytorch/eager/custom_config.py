"""The documented `..._custom_config_dict` arguments: a key that means nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq.errors import QConfigError, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

FUSER_METHODS = "additional_fuser_method_mapping"
OBSERVED_CLASSES = "float_to_observed_custom_module_class"
OPAQUE_NAMES = "non_traceable_module_name"
OPAQUE_TYPES = "non_traceable_module_class"
QUANTIZED_CLASSES = "observed_to_quantized_custom_module_class"
PREPARING = (OBSERVED_CLASSES, OPAQUE_NAMES, OPAQUE_TYPES)

_OF_GRAPH_MODE = "preserved_attributes"  # in all of torch's; modules keep all their attributes


def entries_of(
    config: Mapping[str, Any] | None, argument: str, known: tuple[str, ...]
) -> dict[str, Any]:
    """Entries of the dictionary, by key.

    Args:
        config: None: nothing.
        argument: its name, for messages.
        known: keys that mean something.
    """
    given = dict(config or {})
    given.pop(_OF_GRAPH_MODE, None)
    for key in given:
        if key not in known:
            raise QConfigError(
                f"{argument}: key '{key}' is not known; known: {listed(known)}."
                f"{nearest(str(key), known)}"
            )
    return given
