"""examples/onnxq-example, built and installed apart from onnxq, adds all that it says it adds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "examples" / "onnxq-example"
QCONFIG = """
global:
  activation: {observer: PowerOfTwoObserver}
  weight: {observer: NarrowRangeObserver, dtype: int6, quant_max: 31}
"""


@pytest.fixture(scope="module")
def folder(without_package: Path) -> Path:
    """With the package installed in site/."""
    folder = without_package
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    done = subprocess.run([*pip, *options, str(PACKAGE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def without_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model, samples and a QConfig."""
    folder = tmp_path_factory.mktemp("example")
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        net (float[N,3,8,8] x) => (float[N,2,8,8] y) {
            a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
            b = com.microsoft.QuickGelu <alpha = 1.5> (a)
            y = Conv <kernel_shape = [1, 1]> (b, w2)
        }"""
    )
    for name, shape in {"w1": (4, 3, 3, 3), "w2": (2, 4, 1, 1)}.items():
        weight = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(model, folder / "net.onnx")
    np.savez(folder / "samples.npz", x=random.standard_normal((8, 3, 8, 8)).astype(np.float32))
    (folder / "qconfig.yaml").write_text(QCONFIG)
    return folder


def run(folder: Path, *arguments: str, installed: bool = True, **variables: str) -> str:
    """Text that a fresh Python prints; the package is on its path where `installed`."""
    environment = {**os.environ, **variables}
    if installed:
        environment["PYTHONPATH"] = str(folder / "site")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_json(folder: Path, code: str) -> Any:
    """The JSON that the code prints."""
    return json.loads(run(folder, "-c", code))


@pytest.mark.nightly
def test_inspect_shows_the_operator_in_integers_only_where_the_package_is(folder: Path) -> None:
    command = ("-m", "onnxq", "inspect", "net.onnx")
    lines = {
        installed: next(
            line
            for line in run(folder, *command, installed=installed).splitlines()
            if "QuickGelu" in line
        )
        for installed in (True, False)
    }
    assert "int8" in lines[True].split()
    assert "float" in lines[False].split()


@pytest.mark.nightly
def test_the_catalog_finds_both_operators(folder: Path) -> None:
    assert run_json(
        folder,
        "import json; from onnxq import catalog\n"
        "print(json.dumps([catalog.find('QuickGelu', 'com.microsoft').formula.__module__,"
        " type(catalog.find_integer('MatMulInteger16', 'com.microsoft')).__module__]))",
    ) == ["onnxq_example.quick_gelu", "onnxq_example.mat_mul_integer16"]


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_the_quantized_model_has_the_table_the_type_and_the_scheme(folder: Path, form: str) -> None:
    options = ("--qconfig", "qconfig.yaml", "--format", form, "--save-stats", f"{form}.npz")
    output = f"{form}.onnx"
    told = ("--repair", "off", "-o", output)  # a tiny net is quicker in float
    run(folder, "-m", "onnxq", "quantize", "net.onnx", "samples.npz", *options, *told)
    graph = onnx.load(folder / output).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    assert "QuickGelu" not in {node.op_type for node in graph.node}
    weights = [x for x in arrays.values() if x.dtype == np.int8 and x.ndim == 4]
    assert sorted(int(np.abs(w).max()) for w in weights) == [31, 31]
    scales = [x for name, x in arrays.items() if name.endswith("scale") and x.size == 1]
    assert scales
    assert all(np.frexp(scale)[0] == 0.5 for scale in scales)  # powers of two
    # the reference session runs the kernels, and ONNX Runtime computes the same integers
    different = run_json(
        folder,
        "import json, numpy as np, onnxruntime, onnxq\n"
        "x = {'x': np.load('samples.npz')['x']}\n"
        f"ort = onnxruntime.InferenceSession('{output}').run(None, x)[0]\n"
        f"ours = onnxq.reference.evaluator('{output}').run(None, x)[0]\n"
        "print(json.dumps([int((ort != ours).sum()), float(np.std(ours))]))",
    )
    assert different[0] == 0
    assert different[1] > 0.1
    # saved Statistics name the observer: they are read again
    again = ("-m", "onnxq", "quantize", "net.onnx", "--stats", f"{form}.npz", *options[:4])
    run(folder, *again, "-o", f"again_{output}")
    assert (folder / output).read_bytes() == (folder / f"again_{output}").read_bytes()


@pytest.mark.nightly
def test_every_kernel_equals_onnx_runtime(folder: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(PACKAGE.parent.parent)!r}); "
    program += "from benchmarks.harness.command import main; main(sys.argv[1:])"
    wanted = ("QuickGelu", "MatMulInteger16", "--elements", "5000")
    printed = run(folder, "-c", program, "exactness", *wanted)
    assert printed.count("\n| ") == 4  # the head, and a row per operator and pair of types
    assert "missed" not in printed


@pytest.mark.nightly
def test_the_reference_session_runs_the_operator_on_integers(folder: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        integers (int16[2,3] a, int16[3,2] b) => (int32[2,2] y) {
            y = com.microsoft.MatMulInteger16 (a, b)
        }"""
    )
    onnx.save(model, folder / "integers.onnx")
    assert run_json(
        folder,
        "import json, numpy as np, onnxq\n"
        "a = np.arange(6, dtype=np.int16).reshape(2, 3) * 999\n"
        "session = onnxq.reference.evaluator('integers.onnx')\n"
        "y = session.run(None, {'a': a, 'b': a.T.copy()})[0]\n"
        "print(json.dumps(bool((y == a.astype(int) @ a.T.astype(int)).all())))",
    )


def test_a_single_file_is_enough(without_package: Path) -> None:
    """In a script: by defining it. On the command line: by the environment variable."""
    folder = without_package
    own = (PACKAGE / "onnxq_example" / "quick_gelu.py").read_text("utf-8")
    (folder / "own_operator.py").write_text(own)
    use = "import onnxq; print(onnxq.prepare('net.onnx').decisions['QuickGelu_b'])"
    script = run(folder, "-c", f"import own_operator; {use}", installed=False, PYTHONPATH=".")
    assert script.startswith("Quantize")
    command = ("-m", "onnxq", "inspect", "net.onnx")
    variables = {"PYTHONPATH": ".", "ONNXQ_PLUGINS": "own_operator"}
    assert "no integer form" not in run(folder, *command, installed=False, **variables)


@pytest.mark.nightly
def test_the_operators_in_the_text_run_as_they_stand_there(folder: Path) -> None:
    text = (ROOT / "docs" / "guides" / "extending.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    whole = [b for b in blocks if "onnxq.authoring" in b]  # others are no operators
    for i, block in enumerate(whole):
        (folder / f"documented{i}.py").write_text(block)
    assert len(whole) == 2
    code = (
        "import json, documented0, documented1, numpy as np\n"
        "from onnxq import catalog, dtypes, operator, qparams\n"
        "gelu = catalog.find('QuickGelu', 'com.microsoft')\n"
        "reverse = catalog.find('Reverse', 'com.mine')\n"
        "p = (qparams.per_tensor(1.0, 0, dtypes.UINT8),)\n"
        "integers = [np.array([[1, 2, 3]], np.uint8)]\n"
        "plan = operator.NodePlan(p, p)\n"
        "call = operator.Call('Reverse', integers, plan, attributes={'axis': -1})\n"
        "names = [case.name for case in reverse.cases()]\n"
        "y = reverse.kernel(call)[0].tolist()\n"
        "print(json.dumps([gelu.formula.__module__, names, y]))"
    )
    assert json.loads(run(folder, "-c", code, installed=False, PYTHONPATH=".")) == [
        "documented0",
        ["rows", "columns", "empty batch"],
        [[3, 2, 1]],
    ]
