from __future__ import annotations

import pytest

from onnxq.errors import QConfigError
from onnxq.qconfig import default_qconfig_mapping
from onnxq.qconfig.names import excluding


def test_excluded_nodes_are_float_whatever_the_mapping_said() -> None:
    mapping = default_qconfig_mapping()
    named = mapping.set_node("conv1", mapping.global_qconfig)
    assert excluding(named.nodes, ["conv1", "fc*"]) == {"conv1": None, "fc*": None}
    assert excluding(named.nodes, ()) == named.nodes


@pytest.mark.parametrize("names", ["conv1", [1]])
def test_what_is_no_list_of_names_is_refused(names: list[str]) -> None:
    with pytest.raises(QConfigError, match="wanted a list of names"):
        excluding({}, names)
