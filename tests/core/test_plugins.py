from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from onnxq import dtypes
from onnxq.core import plugins
from onnxq.errors import QConfigError, UnsupportedError
from onnxq.observers import find_observer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plugin is loaded yet, and none is installed."""
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [])
    plugins._entry_points.cache_clear()
    yield
    plugins._entry_points.cache_clear()


def test_a_broken_entry_point_is_named_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = metadata.EntryPoint("mine", "no_such_package.operators", plugins.ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [broken])
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"mine.*no_such_package.*uninstall"):
            plugins.load()


def test_entry_points_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    class Entry:
        name, value = "mine", "somewhere"

        def load(self) -> None:
            plugins.load()  # it may look up what it registers itself
            loaded.append(self.name)

    monkeypatch.setattr(metadata, "entry_points", lambda **_: [Entry()])
    plugins.load()
    plugins.load()
    assert loaded == ["mine"]


def test_a_file_named_in_the_environment_adds_a_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my_own_types.py").write_text(
        "import numpy as np\n"
        "from onnxq.dtypes import QDType, register_qdtype\n"
        "register_qdtype(QDType('int7', 7, True, np.dtype(np.int8), 'INT8', 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(dtypes, "_table", dict(dtypes._table))
    monkeypatch.setenv(plugins.VARIABLE, " my_own_types, ")
    assert dtypes.find("int7").qmax == 63


def test_a_missing_module_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "no_such_module")
    with pytest.raises(UnsupportedError, match=r"no_such_module.*ONNXQ_PLUGINS.*PYTHONPATH"):
        plugins.load()


def test_unknown_names_are_refused_after_the_plugins_were_asked() -> None:
    with pytest.raises(QConfigError, match="'int77' is not known"):
        dtypes.find("int77")
    with pytest.raises(QConfigError, match="'NoObserver' is not known"):
        find_observer("NoObserver")


def test_a_plugin_is_there_where_one_is_installed_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not plugins.are_there()
    monkeypatch.setenv(plugins.VARIABLE, " , mine ")
    assert plugins.are_there()
