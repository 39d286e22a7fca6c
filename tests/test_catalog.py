from __future__ import annotations

import subprocess
import sys

import pytest

from onnxq import catalog, operators
from onnxq.operator import Operator, register
from tests.operators.definitions import module


def test_operators_are_found_by_name_and_domain() -> None:
    conv = catalog.find("Conv")
    assert conv is not None
    assert conv.op_type == "Conv"
    assert catalog.find("Conv", "ai.onnx") is conv
    assert catalog.find("Conv", "com.example") is None
    assert catalog.find("NoSuchOperator") is None


def test_every_public_file_is_imported() -> None:
    names = {module(op) for op in catalog.all_operators()}
    assert f"{operators.__name__}.conv" in names
    assert len(names) == len(catalog.all_operators())


def test_every_operator_is_in_a_file_of_its_name() -> None:
    for operator in catalog.all_operators():
        assert module(operator) in catalog.files_of(operator.op_type)
    for integer in catalog.all_integer_operators():
        if module(integer).startswith(operators.__name__):  # other tests register some
            assert module(integer) in catalog.files_of(integer.op_type)


def test_an_operator_comes_without_the_others() -> None:
    code = (
        "import sys; from onnxq import catalog; catalog.find('Conv'); catalog.find('NoSuch'); "
        "print(*(m for m in sys.modules if m.startswith('onnxq.operators.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "onnxq.operators.conv" in done.stdout
    assert "onnxq.operators.softmax" not in done.stdout


def test_operators_are_sorted() -> None:
    keys = [(op.domain, op.op_type) for op in catalog.all_operators()]
    assert keys == sorted(keys)


def test_an_operator_is_registered_once() -> None:
    conv = catalog.find("Conv")
    with pytest.raises(ValueError, match="registered twice"):
        register(type(conv) if conv is not None else Operator)
