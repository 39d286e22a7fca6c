from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import onnxq
from onnxq import errors

HEAVY = ("torch", "onnxruntime", "onnx_ir", "onnx", "onnxscript", "numpy")
FUNCTIONS = (
    "bench",
    "calibrate",
    "convert",
    "cross_check",
    "export",
    "genai_folder",
    "half",
    "hub_folder",
    "import_qdq",
    "inspect",
    "limits",
    "plan",
    "predict",
    "prepare",
    "prove",
    "quantize",
    "quantize_cache",
    "quantize_dynamic",
    "quantize_weights",
    "rewrite",
    "save",
    "tune",
    "verify",
)


CLASSES = ("Check", "Repair", "Goal", "QuantizedModel", "Samples", "SizeAim")


def run_python(code: str) -> str:
    """Text that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_all_is_sorted_and_has_no_duplicates() -> None:
    assert onnxq.__all__ == sorted(set(onnxq.__all__))


def test_every_name_of_all_can_be_got_and_dir_lists_it() -> None:
    for name in onnxq.__all__:
        assert getattr(onnxq, name) is not None
    assert set(dir(onnxq)) == set(onnxq.__all__)


def test_type_checkers_are_told_every_name_of_all() -> None:
    tree = ast.parse(Path(onnxq.__file__).read_text("utf-8"))
    (told,) = (n for n in tree.body if isinstance(n, ast.If))
    names = {a.name for n in told.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert names | {"__version__"} == set(onnxq.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_are_functions_with_docstrings(name: str) -> None:
    function = getattr(onnxq, name)
    assert inspect.isfunction(function)
    assert function.__doc__


@pytest.mark.oracle
def test_names_that_are_no_function_and_no_class_are_modules() -> None:
    assert all(inspect.isclass(getattr(onnxq, name)) for name in CLASSES)
    modules = set(onnxq.__all__) - {*FUNCTIONS, *CLASSES, "__version__"}
    assert all(isinstance(getattr(onnxq, name), ModuleType) for name in modules)


def test_functions_stay_functions_after_every_module_was_imported() -> None:
    for module in pkgutil.walk_packages(onnxq.__path__, "onnxq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in FUNCTIONS:
        assert inspect.isfunction(getattr(onnxq, name)), name


def test_no_module_is_called_like_a_public_function() -> None:
    """The import system would bind it over the function."""
    modules = {module.name for module in pkgutil.iter_modules(onnxq.__path__)}
    assert not modules & set(FUNCTIONS)


def test_import_loads_nothing_heavy() -> None:
    loaded = run_python(f"import onnxq, sys; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


@pytest.mark.parametrize("name", ["functional", "observers", "qconfig", "qtensor", "targets"])
def test_configuration_needs_neither_torch_nor_onnxruntime(name: str) -> None:
    code = f"import onnxq, sys; onnxq.{name}; print({{'torch', 'onnxruntime'}} & set(sys.modules))"
    assert run_python(code) == "set()"


def test_quantizing_needs_no_torch() -> None:
    code = "import onnxq, sys; onnxq.quantize; onnxq.verify; print('torch' in sys.modules)"
    assert run_python(code) == "False"


def test_without_torch_export_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import onnxq\n"
        "try: onnxq.export\n"
        "except onnxq.errors.UnsupportedError as error: print(error)"
    )
    assert "pip install 'torch>=2.13' safetensors" in run_python(code)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'quantise'\. Did you mean 'quantize'"):
        getattr(onnxq, "quantise")  # noqa: B009  # mypy knows that it is not there


def test_every_error_has_an_exit_code_of_its_own() -> None:
    classes = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.OnnxqError)
    ]
    integers = [c.exit_code for c in classes]
    assert len(integers) == len(set(integers)) == 12
    assert 0 not in integers
    assert 2 not in integers  # click's
