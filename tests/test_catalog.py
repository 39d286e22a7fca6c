from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from onnxq import catalog, operators
from onnxq.errors import UnsupportedError
from onnxq.operator import Operator, register

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def reloaded() -> Iterator[None]:
    """Lets the catalog look for entry points again."""
    catalog._load.cache_clear()
    yield
    catalog._load.cache_clear()


def test_operators_are_found_by_name_and_domain() -> None:
    conv = catalog.find("Conv")
    assert conv is not None
    assert conv.op_type == "Conv"
    assert catalog.find("Conv", "ai.onnx") is conv
    assert catalog.find("Conv", "com.example") is None
    assert catalog.find("NoSuchOperator") is None


def test_every_public_file_is_imported() -> None:
    names = {type(op).__module__ for op in catalog.all_operators()}
    assert f"{operators.__name__}.conv" in names
    assert len(names) == len(catalog.all_operators())


def test_operators_are_sorted() -> None:
    keys = [(op.domain, op.op_type) for op in catalog.all_operators()]
    assert keys == sorted(keys)


def test_an_operator_is_registered_once() -> None:
    conv = catalog.find("Conv")
    with pytest.raises(ValueError, match="registered twice"):
        register(type(conv) if conv is not None else Operator)


@pytest.mark.usefixtures("reloaded")
def test_a_broken_entry_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = metadata.EntryPoint("mine", "no_such_package.operators", catalog.ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [broken])
    with pytest.raises(UnsupportedError, match="no_such_package"):
        catalog.all_operators()


@pytest.mark.usefixtures("reloaded")
def test_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    class Entry:
        name, value = "mine", "somewhere"

        def load(self) -> None:
            loaded.append(self.name)

    monkeypatch.setattr(metadata, "entry_points", lambda **_: [Entry()])
    catalog.find("Conv")
    assert loaded == ["mine"]
