from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx.parser
import pytest

from tests.isa.machines import save_case
from tests.wasm.machine import REQUIRED, find_modules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isa.machines import Results


def test_without_onnxruntime_web_tests_are_skipped_or_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "node")
    monkeypatch.setenv("ONNXQ_WASM", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="run scripts/setup_wasm"):
        find_modules()
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="run scripts/setup_wasm"):
        find_modules()
    (tmp_path / "stamp").touch()
    assert find_modules() == tmp_path
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="no node"):
        find_modules()


@pytest.mark.nightly
def test_arrays_of_all_types_come_back_and_errors_name_the_case(
    tmp_path: Path, run_in_node: Callable[[Path], Results]
) -> None:
    types = {"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int32": "i4"}
    types |= {"int64": "i8", "uint16": "u2", "float16": "f2", "bool": "?"}
    for name, dtype in types.items():
        text = (
            '<ir_version: 10, opset_import: ["": 21]>'
            f"net ({name}[N, M] x) => ({name}[N, M] y) {{ y = Identity(x) }}"
        )
        x = np.arange(6).reshape(2, 3).astype(dtype)
        save_case(tmp_path, name, onnx.parser.parse_model(text).SerializeToString(), {"x": x})
    save_case(tmp_path, "bad", b"no model", {})
    results = run_in_node(tmp_path)
    for name, dtype in types.items():
        (y,) = results.outputs(name)
        assert y.dtype == np.dtype(dtype)
        assert np.array_equal(y, np.arange(6).reshape(2, 3).astype(dtype))
    with pytest.raises(AssertionError, match=r"bad on wasm: .*protobuf"):
        results.outputs("bad")
