"""Bad input through the command line: its message, its exit code, and that nothing is written.

(Longer than 400 lines: one table of what users get wrong, read side by side.)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from onnxq.cli import main
from onnxq.errors import NothingQuantizedError
from tests.examples import images, network, quantized_matmul, save

MODEL, SHAPE, QCONFIG, CALIBRATION, OUTPUT = 3, 4, 5, 6, 9  # exit codes, see errors.py

Make = Callable[[Path], Path]


def invoke(*args: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def good_model(folder: Path) -> Path:
    return save(network(), folder / "m.onnx")


def good_samples(folder: Path) -> Path:
    return npz(x=images(4))(folder)


def refused(code: int, words: tuple[str, ...], folder: Path, *args: object) -> None:
    """The command ends with that code and one message with these words; no file changes."""
    before = contents(folder)
    result = invoke(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr
    assert "\nError: " not in result.stderr
    for word in words:
        assert word in result.stderr
    assert contents(folder) == before


# --- models


def written(data: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / "bad.onnx").write_bytes(data)
        return folder / "bad.onnx"

    return make


def model(proto: Callable[[], onnx.ModelProto]) -> Make:
    return lambda folder: save(proto(), folder / "bad.onnx")


def new_folder(folder: Path) -> Path:
    (folder / "folder.onnx").mkdir()
    return folder / "folder.onnx"


def truncated(folder: Path) -> Path:
    return written(network().SerializeToString()[:-300])(folder)


def without_external_data(folder: Path) -> Path:
    path = folder / "bad.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "w.bin").unlink()
    return path


def cut_external_data(folder: Path) -> Path:
    path = folder / "bad.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "w.bin").write_bytes((folder / "w.bin").read_bytes()[:100])
    return path


def dynamically_quantized() -> onnx.ModelProto:
    proto = network()
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], "dynamic")
    proto.graph.node.insert(0, node)
    return proto


BAD_MODELS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "a file that is not there": (lambda folder: folder / "m0.onnx", ("no such file", "m.onnx")),
    "a folder": (new_folder, ("is a folder",)),
    "an empty file": (written(b""), ("bad.onnx", "empty")),
    "a text file": (written(b"hello, I am a text\n" * 20), ("bad.onnx", "text")),
    "random bytes": (written(bytes(range(256)) * 8), ("bad.onnx", "not an ONNX model")),
    "a truncated file": (truncated, ("bad.onnx", "truncated")),
    "missing external data": (without_external_data, ("w.bin", "missing")),
    "external data that is too short": (cut_external_data, ("w.bin", "too short")),
    "an opset too old": (model(lambda: network(opset=6)), ("opset 6", "too old")),
    "an opset too new": (model(lambda: network(opset=999)), ("opset 999", "too new")),
    "a quantized model": (
        model(lambda: quantized_matmul(np.array(3, np.uint8))),
        ("quantized already", "float model"),
    ),
    "a dynamically quantized model": (
        model(dynamically_quantized),
        ("quantized already", "dynamic"),
    ),
    "a double model": (model(lambda: network(dtype=TensorProto.DOUBLE)), ("double", "float32")),
}


@pytest.mark.parametrize("command", ["inspect", "calibrate", "quantize"])
@pytest.mark.parametrize(("make", "words"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_model_is_refused(make: Make, words: tuple[str, ...], command: str, tmp_path: Path) -> None:
    if command == "inspect" and "quantized already" in words:
        command = "tune"  # in place of inspect, which describes quantized models
    good_model(tmp_path)
    rest = () if command == "inspect" else (good_samples(tmp_path), "-o", tmp_path / "out")
    refused(MODEL, words, tmp_path, command, make(tmp_path), *rest)


@pytest.mark.parametrize("name", ["a text file", "a truncated file", "missing external data"])
def test_bench_and_verify_refuse_the_model_on_either_side(name: str, tmp_path: Path) -> None:
    good, samples = good_model(tmp_path), good_samples(tmp_path)
    make, words = BAD_MODELS[name]
    bad = make(tmp_path)
    for pair in ((bad, good), (good, bad)):
        refused(MODEL, words, tmp_path, "bench", *pair)
        refused(MODEL, words, tmp_path, "verify", *pair, samples)


# --- samples


def npz(**arrays: npt.NDArray[np.generic]) -> Make:
    def make(folder: Path) -> Path:
        np.savez(folder / "x.npz", **arrays)  # type: ignore[arg-type]  # see static/statistics.py
        return folder / "x.npz"

    return make


def with_value(value: float) -> npt.NDArray[np.float32]:
    x = images(4)
    x[2, 1, 3, 4] = value
    return x


def folder_of(*files: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / "samples").mkdir()
        for i, data in enumerate(files):
            (folder / "samples" / f"{i}.npz").write_bytes(data)
        return folder / "samples"

    return make


def damaged_npz(folder: Path) -> Path:
    path = npz(x=images(4))(folder)
    path.write_bytes(path.read_bytes()[:-2000])
    return path


def objects(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=np.array([{"a": 1}], object), allow_pickle=True)
    return folder / "x.npz"


BAD_SAMPLES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "a file that is not there": (lambda folder: folder / "none.npz", ("none.npz", "no such file")),
    "another name": (npz(xx=images(4), labels=np.arange(4)), ("'xx'", "Did you mean 'x'?")),
    "two names": (npz(x=images(4), labels=np.arange(4)), ("'labels'", "it has x")),
    "another rank": (npz(x=images(4)[:, 0]), ("shape", "(4, 8, 8)")),
    "another size": (npz(x=images(4)[:, :2]), ("shape", "(4, 2, 8, 8)")),
    "double": (npz(x=images(4).astype(np.float64)), ("float64", "float32", "astype")),
    "bytes of pixels": (npz(x=images(4).astype(np.uint8)), ("uint8", "float32")),
    "no samples": (npz(x=images(0)), ("no samples",)),
    "no arrays": (npz(), ("x",)),
    "NaN": (npz(x=with_value(np.nan)), ("nan", "sample 2", "'x'")),
    "Inf": (npz(x=with_value(np.inf)), ("inf", "sample 2", "'x'")),
    "-Inf": (npz(x=with_value(-np.inf)), ("-inf", "sample 2")),
    "an empty folder": (folder_of(), ("samples",)),
    "a folder of text": (folder_of(b"text"), ("0.npz",)),
    "a damaged npz": (damaged_npz, ("x.npz",)),
    "pickled objects": (objects, ("x",)),
}


@pytest.mark.parametrize("command", ["calibrate", "quantize"])
@pytest.mark.parametrize(("make", "words"), BAD_SAMPLES.values(), ids=BAD_SAMPLES)
def test_samples_are_refused(
    make: Make, words: tuple[str, ...], command: str, tmp_path: Path
) -> None:
    path = good_model(tmp_path)
    samples = make(tmp_path)
    refused(CALIBRATION, words, tmp_path, command, path, samples, "-o", tmp_path / "out")


@pytest.mark.parametrize("name", ["another name", "another size", "double", "no samples", "NaN"])
def test_verify_and_bench_refuse_the_samples(name: str, tmp_path: Path) -> None:
    path, good = good_model(tmp_path), good_samples(tmp_path)
    quantized = tmp_path / "q.onnx"
    assert invoke("quantize", path, good, "-o", quantized).exit_code == 0
    make, words = BAD_SAMPLES[name]
    samples = make(tmp_path)
    refused(CALIBRATION, words, tmp_path, "verify", path, quantized, samples)
    if name != "NaN":  # bench runs the first batch only, and NaN is in the third
        refused(CALIBRATION, words, tmp_path, "bench", path, quantized, samples)


def test_activations_that_overflow_leave_their_nodes_in_float_with_that_reason(
    tmp_path: Path,
) -> None:
    path, samples = good_model(tmp_path), npz(x=np.full((4, 3, 8, 8), 3e38, np.float32))(tmp_path)
    done = invoke("quantize", path, samples, "-o", tmp_path / "out")
    assert done.exit_code == NothingQuantizedError.exit_code
    assert "is not finite" in done.output


def test_a_left_over_sample_with_a_static_batch_is_refused(tmp_path: Path) -> None:
    path = save(network(batch=3), tmp_path / "m.onnx")
    samples = good_samples(tmp_path)
    words = ("4 samples", "static batch of 3")
    refused(CALIBRATION, words, tmp_path, "quantize", path, samples, "-o", tmp_path / "out")


# --- names


def yaml(text: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / "q.yaml").write_text(text)
        return folder / "q.yaml"

    return make


BAD_QCONFIGS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "a file that is not there": (lambda folder: folder / "none.yaml", ("none.yaml",)),
    "an unknown node": (yaml("nodes: {conv9: null}"), ("conv9", "Did you mean 'conv")),
    "a glob that matches no node": (yaml("nodes: {'layer*': null}"), ("layer*",)),
    "an unknown operator": (yaml("op_types: {Convv: null}"), ("Convv", "Did you mean 'Conv'")),
    "an unknown tensor": (yaml("tensors: {zz9: null}"), ("zz9",)),
    "an unknown key": (yaml("node: {conv1: null}"), ("'node'", "Did you mean 'nodes'")),
    "an unknown observer": (
        yaml("tensors: {x: {observer: MinMaxObserve}}"),
        ("MinMaxObserve", "Did you mean 'MinMaxObserver'"),
    ),
    "an unknown name": (yaml("global: fbgem"), ("fbgem", "Did you mean 'fbgemm'")),
    "no YAML": (yaml("global: {"), ("q.yaml",)),
}


@pytest.mark.parametrize("command", ["inspect", "quantize"])
@pytest.mark.parametrize(("make", "words"), BAD_QCONFIGS.values(), ids=BAD_QCONFIGS)
def test_qconfig_is_refused(
    make: Make, words: tuple[str, ...], command: str, tmp_path: Path
) -> None:
    path = good_model(tmp_path)
    rest = () if command == "inspect" else (good_samples(tmp_path), "-o", tmp_path / "out")
    refused(QCONFIG, words, tmp_path, command, path, *rest, "--qconfig", make(tmp_path))


BAD_OPTIONS: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "target": (("--target", "x86-vni"), ("x86-vni", "Did you mean 'x86-vnni'")),
    "format": (("--format", "qdp"), ("qdp", "Did you mean 'qdq'")),
    "override": (("--set", "node:conv9=float"), ("conv9", "Did you mean")),
    "feedback output": (("--feedback", "yy=x"), ("'yy'", "Did you mean 'y'")),
    "feedback input": (("--feedback", "y=xx"), ("'xx'", "Did you mean 'x'")),
}


@pytest.mark.parametrize(("option", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_option_is_refused(option: tuple[str, str], words: tuple[str, ...], tmp_path: Path) -> None:
    args = (good_model(tmp_path), good_samples(tmp_path), "-o", tmp_path / "out", *option)
    refused(QCONFIG, words, tmp_path, "quantize", *args)


# --- statistics


def test_statistics_of_another_model_are_refused(tmp_path: Path) -> None:
    stats, other = tmp_path / "m.stats", tmp_path / "other.onnx"
    args = (good_model(tmp_path), good_samples(tmp_path))
    assert invoke("calibrate", *args, "-o", stats).exit_code == 0
    proto = network()
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0]) * 2
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w1"))
    save(proto, other)
    out = ("-o", tmp_path / "out")
    words = ("another model",)
    refused(CALIBRATION, words, tmp_path, "quantize", other, "--stats", stats, *out)
    resume = (other, args[1], "-o", stats, "--resume")
    refused(CALIBRATION, words, tmp_path, "calibrate", *resume)


def test_statistics_of_another_observer_are_refused(tmp_path: Path) -> None:
    stats, path = tmp_path / "m.stats", good_model(tmp_path)
    assert invoke("calibrate", path, good_samples(tmp_path), "-o", stats).exit_code == 0
    option = ("--set", "tensor:x=MinMaxObserver", "-o", tmp_path / "out")
    words = ("'x'", "MinMaxObserver")
    refused(CALIBRATION, words, tmp_path, "quantize", path, "--stats", stats, *option)


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04 damaged"])
def test_damaged_statistics_are_refused(data: bytes, tmp_path: Path) -> None:
    stats = tmp_path / "m.stats"
    stats.write_bytes(data)
    args = (good_model(tmp_path), "--stats", stats, "-o", tmp_path / "out")
    refused(CALIBRATION, ("m.stats",), tmp_path, "quantize", *args)


def test_samples_as_statistics_and_statistics_as_samples_are_refused(tmp_path: Path) -> None:
    path, samples, stats = good_model(tmp_path), good_samples(tmp_path), tmp_path / "m.stats"
    out = ("-o", tmp_path / "out")
    words = ("npz with the arrays x, and no .stats file", "without --stats")
    refused(CALIBRATION, words, tmp_path, "quantize", path, "--stats", samples, *out)
    assert invoke("calibrate", path, samples, "-o", stats).exit_code == 0
    words = ("are statistics of an earlier calibration", "--stats FILE")
    refused(CALIBRATION, words, tmp_path, "quantize", path, stats, *out)


def test_pickled_objects_are_named_in_our_words(tmp_path: Path) -> None:
    path, objects = good_model(tmp_path), tmp_path / "objects.npz"
    np.savez(objects, header=np.array([{}], object))
    args = (path, "--stats", objects, "-o", tmp_path / "out")
    refused(CALIBRATION, ("is no npz of plain arrays",), tmp_path, "quantize", *args)
    assert "allow_pickle" not in invoke("quantize", *args).stderr


def test_the_same_statistics_twice_are_refused(tmp_path: Path) -> None:
    stats, path = tmp_path / "m.stats", good_model(tmp_path)
    assert invoke("calibrate", path, good_samples(tmp_path), "-o", stats).exit_code == 0
    args = ("--stats", stats, "--stats", stats, "-o", tmp_path / "out")
    refused(CALIBRATION, ("batch 0", "twice"), tmp_path, "quantize", path, *args)


# --- outputs


BAD_OUTPUTS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "a folder": (lambda folder: folder, ("is a folder",)),
    "a folder that is not there": (lambda folder: folder / "no" / "q.onnx", ("does not exist",)),
    "below a file": (lambda folder: folder / "m.onnx" / "q.onnx", ("does not exist",)),
    "the model": (lambda folder: folder / "m.onnx", ("m.onnx", "is also read")),
    "the samples": (lambda folder: folder / "x.npz", ("x.npz", "is also read")),
    "the model by another name": (lambda folder: folder / "." / "m.onnx", ("is also read",)),
    "a device": (lambda _: Path("/dev/null"), ("/dev/null", "is a device")),
    "the kernel's files": (lambda _: Path("/proc/q.onnx"), ("cannot be written",)),
}


@pytest.mark.parametrize("command", ["calibrate", "quantize"])
@pytest.mark.parametrize(("make", "words"), BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
def test_output_is_refused_before_any_work(
    make: Make,
    words: tuple[str, ...],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, samples = good_model(tmp_path), good_samples(tmp_path)
    monkeypatch.setattr("onnxq.static.prepare.prepare", lambda *_: pytest.fail("work was begun"))
    refused(OUTPUT, words, tmp_path, command, path, samples, "-o", make(tmp_path))


@pytest.mark.parametrize("command", ["calibrate", "quantize"])
def test_a_name_that_is_too_long_is_wrong_usage(command: str, tmp_path: Path) -> None:
    path, samples = good_model(tmp_path), good_samples(tmp_path)
    result = invoke(command, path, samples, "-o", tmp_path / ("q" * 300))
    assert result.exit_code == 2
    assert "File name too long" in result.output


@pytest.mark.parametrize("command", ["calibrate", "quantize"])
def test_the_folder_of_the_output_is_no_model(command: str, tmp_path: Path) -> None:
    args = (tmp_path, good_samples(tmp_path), "-o", tmp_path / "out")
    refused(MODEL, ("is a folder; give the .onnx file",), tmp_path, command, *args)


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_a_link_to_the_model_is_no_output(kind: str, tmp_path: Path) -> None:
    path, samples = good_model(tmp_path), good_samples(tmp_path)
    getattr(tmp_path / "link.onnx", kind)(path)
    args = (path, samples, "-o", tmp_path / "link.onnx")
    refused(OUTPUT, ("is also read",), tmp_path, "quantize", *args)


def test_the_models_external_data_is_no_output(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    args = (path, good_samples(tmp_path), "-o", tmp_path / "w.bin")
    refused(OUTPUT, ("w.bin", "is also read"), tmp_path, "quantize", *args)


def test_a_file_in_the_folder_of_samples_is_no_output(tmp_path: Path) -> None:
    path, samples = good_model(tmp_path), folder_of(b"")(tmp_path)
    args = (path, samples, "-o", samples / "0.npz")
    refused(OUTPUT, ("0.npz", "is also read"), tmp_path, "calibrate", *args)


def test_the_same_output_twice_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = (good_model(tmp_path), good_samples(tmp_path), "-o", out, "--save-plan", out)
    refused(OUTPUT, ("written twice",), tmp_path, "quantize", *args)


def test_samples_and_statistics_together_are_wrong_usage(tmp_path: Path) -> None:
    path, samples = good_model(tmp_path), good_samples(tmp_path)
    for args in ((samples, "--stats", "s"), ()):
        result = invoke("quantize", path, *args, "-o", tmp_path / "out")
        assert result.exit_code == 2
        assert "SAMPLES or --stats" in result.stderr


@pytest.mark.oracle
def test_export_refuses_bad_names_and_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_bad_file.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n"
        "def number():\n    return 1\n"
    )
    (tmp_path / "w.safetensors").write_bytes(b"text")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    out = ("-o", tmp_path / "m.onnx", "--input", "input=float32[2,4]")
    make = "my_bad_file:make"
    refused(QCONFIG, ("MODULE:FACTORY",), tmp_path, "export", "my_bad_file", *out)
    refused(QCONFIG, ("no module", "my_bad_fil"), tmp_path, "export", "my_bad_fil:make", *out)
    refused(QCONFIG, ("mak", "Did you mean 'make'"), tmp_path, "export", "my_bad_file:mak", *out)
    refused(MODEL, ("int", "torch.nn.Module"), tmp_path, "export", "my_bad_file:number", *out)
    weights = ("--weights", tmp_path / "w.safetensors")
    refused(MODEL, ("w.safetensors",), tmp_path, "export", make, *out, *weights)
    wrong = ("-o", tmp_path / "m.onnx", "--input", "inputt=float32[2,4]")
    refused(QCONFIG, ("forward(input)", "Did you mean 'input'"), tmp_path, "export", make, *wrong)
