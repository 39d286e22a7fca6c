from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "print('sympy.core' in sys.modules)"


def printed(*lines: str) -> list[str]:
    """Lines that a fresh Python prints."""
    code = "\n".join(("import sys", *lines))
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_onnx_ir_loads_sympy_when_names_of_dimensions_are_computed_with() -> None:
    lines = ("import onnxq", "import onnx_ir as ir", "dim = ir.SymbolicDim('n')", LOADED)
    computed = ("print((dim + 1).value)", "print(ir.SymbolicDim('max(n, 2)') - 1)", LOADED)
    assert printed(*lines, *computed) == ["False", "n + 1", "Max(2, n) - 1", "True"]


@pytest.mark.parametrize(
    "use",
    [
        ("from sympy import Max", "print(Max(1, 2))"),
        ("import sympy.core.numbers", "print(sympy.core.numbers.Integer(2))"),
    ],
)
def test_sympy_that_is_put_off_is_there_for_everybody(use: tuple[str, str]) -> None:
    lines = ("import onnxq, onnx_ir", LOADED, *use, "import sympy", "print(sympy.__file__[-11:])")
    assert printed(*lines) == ["False", "2", "__init__.py"]


def test_only_the_import_by_onnx_ir_is_put_off() -> None:
    lines = ("import onnxq, sympy", LOADED, "import onnx_ir", "print(onnx_ir._core.sympy is sympy)")
    assert printed(*lines) == ["True", "True"]


def test_onnx_ir_is_loaded_as_ever() -> None:
    lines = ("import onnxq, onnx_ir, importlib", "print(type(onnx_ir.__loader__).__name__)")
    same = ("print(onnx_ir.__spec__.loader is onnx_ir.__loader__)",)
    again = ("importlib.reload(onnx_ir)", "importlib.reload(onnxq)", *same, LOADED)
    assert printed(*lines, *same, *again) == ["SourceFileLoader", "True", "True", "False"]


def test_other_finders_of_onnx_ir_are_asked_in_their_order() -> None:
    """A frozen application has one ahead of all others, an editable installation one behind."""
    finder = (
        "from importlib.machinery import PathFinder",
        "class Finder:",
        "    def __init__(self, name): self.name = name",
        "    def find_spec(self, fullname, path=None, target=None):",
        "        if fullname != 'onnx_ir': return None",
        "        print(self.name)",
        "        return PathFinder.find_spec(fullname, path) if self.name == 'second' else None",
        "sys.meta_path[:0] = [Finder('first'), Finder('second')]",
    )
    assert printed(*finder, "import onnxq, onnx_ir", LOADED) == ["first", "second", "False"]


def test_what_the_loader_of_onnx_ir_tells_is_told_before_its_import() -> None:
    lines = ("import importlib.util, onnxq", "spec = importlib.util.find_spec('onnx_ir')")
    told = ("print(spec.loader.get_filename('onnx_ir') == spec.origin)", "import onnx_ir", LOADED)
    assert printed(*lines, *told) == ["True", "False"]


def test_threads_that_ask_at_once_see_a_whole_module() -> None:
    lines = (
        "import onnxq, onnx_ir",
        "from concurrent.futures import ThreadPoolExecutor as Pool",
        "names = ['Max', 'Symbol', 'simplify', 'Integer'] * 4",
        "late = onnx_ir._core.sympy",
        "print(len(list(Pool(16).map(lambda name: getattr(late, name), names))))",
    )
    assert printed(*lines) == ["16"]
