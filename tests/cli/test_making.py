from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq import catalog
from onnxq.dynamic.dynamic_decision import DynamicPlan
from onnxq.qconfig import QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.static.plan import Plan
from onnxq.static.statistics import Statistics
from tests.dynamic_models import parsed
from tests.examples import images, network, save, weights
from tests.operators import builder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_quantize_reports_people_what_became_of_the_nodes(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    result = run("quantize", model_path, samples_path, "-o", tmp_path / "q.onnx", "-v")
    assert "precisions of nodes" in result.stdout
    assert "softmax" in result.stdout
    assert "QLinearConv" in result.stdout
    assert result.stdout.index("verdict: ") < result.stdout.index("precisions of nodes")


def test_quantize_says_what_an_algorithm_did(
    run: Run, model_path: Path, samples_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model_path.parent)  # long paths and verdicts leave no rows for it
    arguments = ("quantize", model_path.name, samples_path.name, "--no-verdict")
    improved = run(*arguments, "--improve", "bias", "-o", "bias.onnx").stdout.splitlines()
    assert any(line.startswith("PTQ algorithm 'bias': ") for line in improved)
    assert "PTQ algorithm" not in run(*arguments, "--fast", "-o", "fast.onnx").stdout


def test_quantize_reports_programs_the_same(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    result = run(
        "quantize", model_path, samples_path, "-o", output, "--json", "--target", "x86-vnni"
    )
    value = json.loads(result.stdout)
    assert value["target"] == "x86-vnni"
    assert value["quantized_bytes"] == output.stat().st_size
    assert value["float_bytes"] == model_path.stat().st_size
    assert value["execution"]["integer_nodes"]["QLinearConv"] == 2
    assert value["counts"]["Conv"] == {"integers": 2, "floats": 0, "dynamic": 0}
    onnx.checker.check_model(str(output), full_check=True)


def test_quantize_lists_the_layers_with_a_reduced_range(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    arguments = ("quantize", model_path, samples_path, "-o", tmp_path / "q.onnx")
    assert "largest scale" not in run(*arguments).stdout
    whole = run(*arguments, "-v").stdout
    assert "reduced range of weights, so that pairs of products fit int16 (worst-case):" in whole
    assert "Their last bits may differ between machines" in whole  # a Softmax is left in float
    value = json.loads(run(*arguments, "--reduce-range", "everywhere", "--json").stdout)
    assert value["reduce_range"] == "everywhere"
    assert {r["largest"] for r in value["reductions"].values()} == {127 / 64}
    assert "reduced range" not in run(*arguments, "--target", "x86-vnni").stdout


def test_quantize_looks_for_saturation_on_the_samples(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output, stats = tmp_path / "q.onnx", tmp_path / "m.stats"
    observed = ("-o", output, "--reduce-range", "observed")
    result = run("quantize", model_path, samples_path, *observed, "--save-stats", stats, "-v")
    assert result.exit_code == 0
    assert "on other inputs integers may differ on x86 without VNNI" in result.stdout
    result = run("quantize", model_path, "--stats", stats, *observed)
    assert (result.exit_code, "needs the samples" in result.stderr) == (6, True)
    result = run("quantize", model_path, samples_path, *observed[:2], "--reduce-range", "half")
    assert (result.exit_code, "'half' is not known" in result.stderr) == (5, True)


def test_quantize_writes_nothing_beside_what_was_asked(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())
    names = {tmp_path / name for name in ("q.onnx", "plan.json", "q.stats")}
    options = ("--save-plan", tmp_path / "plan.json", "--save-stats", tmp_path / "q.stats")
    assert (
        run("quantize", model_path, samples_path, "-o", tmp_path / "q.onnx", *options).exit_code
        == 0
    )
    assert set(tmp_path.iterdir()) == before | names
    assert Plan.load(tmp_path / "plan.json").target == "portable"
    assert len(Statistics.load(tmp_path / "q.stats").batches) == 8


def test_quantize_writes_operators_on_integers_on_request(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    options = ("-o", output, "--format", "qoperator", "--set", "op:Softmax=default", "--json")
    result = run("quantize", model_path, samples_path, *options)
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert (said["format"], said["kept_qdq"], said["tables"]) == ("qoperator", {}, [])
    assert not said["execution"]["fallbacks"]
    ops = {node.op_type for node in onnx.load(output).graph.node}
    assert {"QLinearConv", "QLinearAdd", "QLinearSoftmax", "QGemm"} <= ops
    assert not ops & {"Conv", "Add", "Gemm", "Softmax"}
    qdq = tmp_path / "qdq.onnx"
    result = run("quantize", model_path, samples_path, "-o", qdq, "--json")
    assert json.loads(result.stdout)["format"] == "qdq"
    for command in (("verify", model_path, output, samples_path), ("bench", model_path, output)):
        result = run(*command, "--json")
        assert result.exit_code == 0, result.stderr


def test_what_stays_in_qdq_form_is_printed(run: Run, samples_path: Path, tmp_path: Path) -> None:
    model = network()
    (softmax,) = (node for node in model.graph.node if node.op_type == "Softmax")
    softmax.op_type, softmax.name = "Erf", "erf"
    softmax.ClearField("attribute")
    path = tmp_path / "erf.onnx"
    onnx.save(model, path)
    options = ("-v", "-o", tmp_path / "q.onnx", "--format", "qoperator", "--set", "op:Erf=default")
    result = run("quantize", path, samples_path, *options)
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "note: between DequantizeLinear and QuantizeLinear: 'erf': ONNX Runtime" in text


def test_an_unknown_format_is_refused_before_calibration(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    options = ("-o", tmp_path / "q.onnx", "--format", "qoperater")
    result = run("quantize", model_path, samples_path, *options)
    assert result.exit_code != 0
    assert "known: qdq, qoperator" in result.stderr
    assert "qoperator" in result.stderr.split("known:")[1].split(".")[1]


def test_labels_in_the_samples_are_ignored_on_request(
    run: Run, model_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "labelled.npz"
    np.savez(path, x=images(2), labels=np.arange(2))
    output = tmp_path / "q.onnx"
    assert run("quantize", model_path, path, "-o", output).exit_code == 6
    assert run("quantize", model_path, path, "-o", output, "--ignore", "labels").exit_code == 0


@pytest.mark.parametrize("command", ["quantize", "calibrate", "report"])
def test_a_name_to_ignore_that_no_array_has_is_refused(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path, command: str
) -> None:
    paths: tuple[Path, ...] = (model_path, samples_path)
    if command == "report":
        paths = (model_path, model_path, samples_path)
    refused = run(command, *paths, "-o", tmp_path / "out", "--ignore", "labels")
    assert refused.exit_code == 6
    assert "no array 'labels' is there to ignore" in refused.stderr


def test_a_qconfig_file_leaves_a_node_in_float(run: Run, model_path: Path, tmp_path: Path) -> None:
    qconfig = tmp_path / "q.yaml"
    qconfig.write_text("nodes:\n  conv2: null\n")
    for option in (("--qconfig", qconfig), ("--set", "node:conv2=float")):
        result = run("inspect", model_path, *option, "--json")
        assert result.exit_code == 0, result.stderr
        decisions = {n["name"]: n for n in json.loads(result.stdout)["nodes"]}
        assert decisions["conv1"]["decision"] == "integers"
        assert decisions["conv2"]["decision"] == "float"
        assert "qconfig" in decisions["conv2"]["reason"]


# --- quantize-dynamic


def test_quantize_dynamic_says_what_it_quantized_and_what_not(
    run: Run, model_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    options = ("-o", output, "--objective", "size", "--set", "op:Conv=float")
    result = run("quantize-dynamic", model_path, *options, "-v")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert f"{output}: quantized dynamically for portable, objective size" in text
    assert "precision nodes op why, or how which weight_only 1 Gemm int8 weights" in text
    assert "float 2 Conv the qconfig leaves " in text
    assert "float 6 Relu (2), Add (1), it has no" in text
    onnx.checker.check_model(str(output), full_check=True)


def test_quantize_dynamic_says_the_same_to_programs(
    run: Run, model_path: Path, tmp_path: Path
) -> None:
    output, plan = tmp_path / "q.onnx", tmp_path / "plan.json"
    options = ("-o", output, "--objective", "size", "--target", "x86-vnni", "--save-plan", plan)
    result = run("quantize-dynamic", model_path, *options, "--json")
    value = json.loads(result.stdout)
    assert (value["target"], value["objective"]) == ("x86-vnni", "size")
    assert value["format"] == "dynamic"
    assert value["precisions"]["gemm"] in {"dynamic_int8", "weight_only_groupwise", "weight_only"}
    assert value["counts"]["Gemm"] == {"integers": 0, "floats": 0, "dynamic": 1}
    assert value["float_bytes"] == model_path.stat().st_size
    assert value["quantized_bytes"] == output.stat().st_size
    assert DynamicPlan.load(plan).decisions.keys() == {n["name"] for n in value["nodes"]}


def test_quantize_dynamic_reads_a_qconfig(run: Run, model_path: Path, tmp_path: Path) -> None:
    qconfig = tmp_path / "q.yaml"
    qconfig.write_text(
        "global: null\n"
        "nodes:\n"
        "  gemm: {dynamic: {weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7},\n"
        "                   precision: weight_only_groupwise, block_size: 16}}\n"
    )
    options = ("-o", tmp_path / "q.onnx", "--qconfig", qconfig, "--json")
    value = json.loads(run("quantize-dynamic", model_path, *options).stdout)
    assert value["precisions"] == {"gemm": "weight_only_groupwise"}


def test_quantize_dynamic_stores_float16(run: Run, model_path: Path, tmp_path: Path) -> None:
    options = ("-o", tmp_path / "q.onnx", "--dtype", "float16", "--json")
    value = json.loads(run("quantize-dynamic", model_path, *options).stdout)
    assert value["precisions"]["gemm"] == "weight_only_float16"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--objective", "fast"), 5, "objective 'fast' is not known; known: speed, size"),
        (("--dtype", "int4"), 5, "wanted qint8 or float16"),
        (("--target", "x87"), 5, "target 'x87' is not known"),
        (
            ("--set", "op:Gem=dynamic_int8"),
            5,
            "'Gem' is no op type with a dynamic form; these are Attention,",
        ),
        (("--set", "op:Relu=dynamic_int8"), 5, "'Relu' is no op type with a dynamic form"),
        (("--set", "node:fc*=dynamic_int8"), 5, "no node matches 'fc*'"),
        (
            ("--dtype", "float16", "--set", "global=dynamic_int8"),
            5,
            "dtype float16 is asked for, and the entry of every node has int8 weights",
        ),
        (("--set", "op:Gemm=fbgemm"), 5, "op type 'Gemm' has a static QConfig"),
        (("--set", "global=float"), 13, "there are no weights to quantize. The model has 2 Conv"),
    ],
)
def test_quantize_dynamic_refuses_what_it_does_not_know(
    run: Run, model_path: Path, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    result = run("quantize-dynamic", model_path, "-o", tmp_path / "q.onnx", *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_quantize_dynamic_says_which_entries_a_dtype_is_not_for(
    run: Run, model_path: Path, tmp_path: Path
) -> None:
    asked = (
        "--dtype",
        "float16",
        "--set",
        "node:gemm=dynamic_int8",
        "--objective",
        "size",
        "--json",
    )
    value = json.loads(
        run("quantize-dynamic", model_path, "-o", tmp_path / "q.onnx", *asked).stdout
    )
    assert value["precisions"]["gemm"] != "weight_only_float16"
    assert "weight_only_float16" in value["precisions"].values()
    (note,) = value["notes"]
    assert note == (
        "dtype float16 is for what the qconfig does not name; it names node 'gemm' (int8)"
    )


def test_a_dynamic_model_can_be_verified_and_timed_but_not_quantized_again(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    qconfig = tmp_path / "q.yaml"
    qconfig.write_text("global: null\nnodes: {gemm: {dynamic: {precision: dynamic_int8}}}\n")
    assert run("quantize-dynamic", model_path, "-o", output, "--qconfig", qconfig).exit_code == 0
    for command in (
        ("verify", model_path, output, samples_path, "--min-sqnr", "30"),
        ("bench", model_path, output, "--runs", "2"),
    ):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        assert "1 (DynamicQuantizeMatMul 1) in integers" in result.stdout
    result = run("cross-check", output, samples_path, "--json")
    nodes = json.loads(result.stdout)["nodes"]
    assert [(n["op_type"], n["differing"]) for n in nodes] == [("DynamicQuantizeMatMul", 0)]
    again = run("quantize-dynamic", output, "-o", tmp_path / "again.onnx")
    assert again.exit_code == 3
    assert "quantized already" in again.stderr


def test_quantize_reports_the_nodes_that_it_quantized_dynamically(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    options = ("-o", tmp_path / "q.onnx", "--set", "op:Gemm=dynamic_int8", "--objective", "size")
    result = run("quantize", model_path, samples_path, *options, "--json")
    value = json.loads(result.stdout)
    assert value["counts"]["Gemm"] == {"integers": 0, "floats": 0, "dynamic": 1}
    assert value["counts"]["Conv"] == {"integers": 2, "floats": 0, "dynamic": 0}
    (group,) = (g for g in value["groups"] if "Gemm" in g["op_types"])
    assert group["nodes"] == ["gemm"]
    assert group["why"].startswith("int8 weights")


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_the_remedy_that_a_recurrent_node_is_given_works(
    name: str, run: Run, tmp_path: Path
) -> None:
    operator = catalog.find(name)
    assert operator is not None
    case = next(
        c for c in operator.cases() if c.constants and not (c.attributes or {}).get("layout")
    )
    path, samples = tmp_path / "m.onnx", tmp_path / "x.npz"
    float_model = builder.float_model(operator, case)
    onnx.save(float_model, path)
    feeds: dict[str, Any] = {i.name: case.inputs[int(i.name[2:])] for i in float_model.graph.input}
    np.savez(samples, **feeds)
    told = " ".join(run("inspect", path, "--all-integers").stdout.split())
    assert f"--set op:{name}=dynamic_int8; in Python QConfigMapping().set_op_type('{name}'," in told
    options = ("-o", tmp_path / "q.onnx", "--set", f"op:{name}=dynamic_int8", "--objective", "size")
    result = run("quantize", path, samples, *options, "--json")
    assert json.loads(result.stdout)["counts"][name]["dynamic"] == 1, result.stderr
    mapping = QConfigMapping().set_op_type(name, onnxq_default_dynamic_qconfig)
    made = onnxq.quantize(path, [feeds], qconfig=mapping, objective="size")
    types = [n.op_type for n in made.graph]
    assert types == [n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node]
    assert types != [name]


def test_the_saved_precisions_give_the_same_file(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    first, again, precisions = (
        tmp_path / "a.onnx",
        tmp_path / "b.onnx",
        tmp_path / "precisions.yaml",
    )
    options = ("-o", first, "--save-qconfig", precisions)
    assert run("quantize", model_path, samples_path, *options).exit_code == 0
    result = run("quantize", model_path, samples_path, "-o", again, "--qconfig", precisions)
    assert result.exit_code == 0, result.stderr
    assert again.read_bytes() == first.read_bytes()


def test_excluded_nodes_stay_in_float_on_the_command_line_too(run: Run, model_path: Path) -> None:
    result = run("inspect", model_path, "--exclude", "conv*", "--exclude", "gemm", "--json")
    precisions = {node["name"]: node["precision"] for node in json.loads(result.stdout)["nodes"]}
    assert {precisions["conv1"], precisions["conv2"], precisions["gemm"]} == {"float"}
    wrong = run("inspect", model_path, "--exclude", "conv_1")
    assert (wrong.exit_code, "Did you mean 'conv1'" in wrong.stderr) == (5, True)


def test_quiet_commands_write_the_file_and_say_nothing(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    made, stats, small = (tmp_path / name for name in ("q.onnx", "s.stats", "d.onnx"))
    for words in (
        ("calibrate", model_path, samples_path, "-o", stats),
        ("quantize", model_path, "--stats", stats, "-o", made),
        ("quantize-dynamic", model_path, "-o", small, "--objective", "size"),
    ):
        result = run(*words, "-q")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert all(path.exists() for path in (made, stats, small))
    assert "QLinearConv" in run("inspect", made, "-q").stdout


def test_the_next_command_says_sizes_that_the_model_leaves_open(run: Run, tmp_path: Path) -> None:
    text = "g (float[n, t, 32] x) => (float[n, t, 32] y) { y = MatMul(x, w) }"
    source = save(parsed(text, {"w": weights(1, 32, 32)}), tmp_path / "m.onnx")
    made = run("quantize-dynamic", source, "-o", tmp_path / "q.onnx", "--objective", "size")
    (command,) = (line for line in made.stdout.splitlines() if line.startswith("next: "))
    words = shlex.split(command.partition("   #")[0])[2:]
    assert words[-2:] == ["--shape", "x=1,64,32"]
    assert run(*words).exit_code == 0
