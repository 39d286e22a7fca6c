from __future__ import annotations

import pytest

from onnxq import catalog, operators
from onnxq.operator import Operator, register


def test_operators_are_found_by_name_and_domain() -> None:
    conv = catalog.find("Conv")
    assert conv is not None
    assert conv.op_type == "Conv"
    assert catalog.find("Conv", "ai.onnx") is conv
    assert catalog.find("Conv", "com.example") is None
    assert catalog.find("NoSuchOperator") is None


def test_every_public_file_is_imported() -> None:
    names = {op.definition().__module__ for op in catalog.all_operators()}
    assert f"{operators.__name__}.conv" in names
    assert len(names) == len(catalog.all_operators())


def test_operators_are_sorted() -> None:
    keys = [(op.domain, op.op_type) for op in catalog.all_operators()]
    assert keys == sorted(keys)


def test_an_operator_is_registered_once() -> None:
    conv = catalog.find("Conv")
    with pytest.raises(ValueError, match="registered twice"):
        register(type(conv) if conv is not None else Operator)
