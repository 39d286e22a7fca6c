"""The twin of the package onnxq.qconfig, whose files are private: one file, over 400 lines."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from onnxq import qconfig
from onnxq.errors import QConfigError
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    ObserverSpec,
    PerChannelMinMaxObserver,
)
from onnxq.operator import Precision
from onnxq.qconfig import (
    NOT_SET,
    Choice,
    Entry,
    FakeQuantSpec,
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    default_qconfig_mapping,
    get_default_qat_qconfig,
    get_default_qconfig,
)

if TYPE_CHECKING:
    from pathlib import Path

A = get_default_qconfig("fbgemm")
B = get_default_qconfig("qnnpack")
C = qconfig.default_qconfig
SPEC = MinMaxObserver.with_args(reduce_range=True)


# documented values, against torch


def described(spec: ObserverSpec) -> tuple[object, ...]:
    observer = spec()
    return (
        spec.name,
        observer.dtype.name,
        observer.qscheme.value,
        observer.quant_min,
        observer.quant_max,
        spec.argument("ch_axis", 0),
    )


def described_by_torch(factory: Any) -> tuple[object, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = factory()
    observer = getattr(made, "activation_post_process", made)
    dtype = str(observer.dtype).removeprefix("torch.").replace("qu", "u").replace("qi", "i")
    return (
        type(observer).__name__,
        dtype,
        str(observer.qscheme).removeprefix("torch."),
        observer.quant_min,
        observer.quant_max,
        getattr(observer, "ch_axis", 0),
    )


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN:UserWarning")  # without VNNI
@pytest.mark.parametrize("backend", ["fbgemm", "x86", "qnnpack", "onednn"])
@pytest.mark.parametrize("part", ["activation", "weight"])
def test_backend_defaults_are_those_of_torch(backend: str, part: str) -> None:
    import torch.ao.quantization as torch_ao

    static: Any = torch_ao.get_default_qconfig
    qat: Any = torch_ao.get_default_qat_qconfig

    pairs = [
        (get_default_qconfig(backend), static(backend)),
        (get_default_qat_qconfig(backend), qat(backend, version=0)),
    ]
    for ours, theirs in pairs:
        spec = getattr(ours, f"{part}_observer")
        assert described(spec) == described_by_torch(getattr(theirs, part))
    assert isinstance(getattr(pairs[1][0], part), FakeQuantSpec)
    assert isinstance(getattr(pairs[0][0], part), ObserverSpec)


@pytest.mark.oracle
@pytest.mark.parametrize("part", ["activation", "weight"])
@pytest.mark.parametrize(
    "name", ["default_qconfig", "default_per_channel_qconfig", "default_qat_qconfig"]
)
def test_documented_qconfigs_are_those_of_torch(name: str, part: str) -> None:
    import torch.ao.quantization.qconfig as torch_qconfig

    spec = getattr(getattr(qconfig, name), f"{part}_observer")
    assert described(spec) == described_by_torch(getattr(getattr(torch_qconfig, name), part))


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["default_dynamic_qconfig", "per_channel_dynamic_qconfig"])
def test_dynamic_weights_are_those_of_torch(name: str) -> None:
    import torch.ao.quantization.qconfig as torch_qconfig

    ours = getattr(qconfig, name)
    assert isinstance(ours, QConfigDynamic)
    theirs = getattr(torch_qconfig, name).weight
    assert described(ours.weight_observer) == described_by_torch(theirs)


def test_float16_dynamic_stores_weights_as_float16() -> None:
    weight = qconfig.float16_dynamic_qconfig.weight
    assert weight == NoopObserver.with_args(dtype="float16")


def test_without_a_backend_it_is_onnxqs_own() -> None:
    assert get_default_qconfig() == qconfig.onnxq_default_qconfig
    assert get_default_qconfig("") == QConfig(
        HistogramObserver.with_args(eps=2.0**-60), NarrowRangeObserver.with_args()
    )
    assert default_qconfig_mapping().for_node("n", "Conv") == get_default_qconfig()
    observer = get_default_qat_qconfig().weight_observer()
    assert (observer.quant_min, observer.quant_max) == (-127, 127)


@pytest.mark.parametrize("function", [get_default_qconfig, get_default_qat_qconfig])
def test_unknown_backend_suggests_the_nearest(function: Any) -> None:
    with pytest.raises(QConfigError, match=r"'fbgem' is not known.*Did you mean 'fbgemm'\?"):
        function("fbgem")


# QConfig


def test_a_class_stands_for_its_spec() -> None:
    weight = FakeQuantSpec(PerChannelMinMaxObserver)  # type: ignore[arg-type]  # becomes its spec
    made = QConfig(MinMaxObserver, weight)  # type: ignore[arg-type]  # likewise
    assert made.activation == made.activation_observer == MinMaxObserver.with_args()
    assert made.weight_observer == PerChannelMinMaxObserver.with_args()


def test_an_observer_instance_is_refused() -> None:
    with pytest.raises(QConfigError, match=r"QConfig.weight: got an instance of MinMaxObserver"):
        QConfig(MinMaxObserver, MinMaxObserver())  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(QConfigError, match=r"QConfig.activation: got 8"):
        QConfig(8, MinMaxObserver)  # type: ignore[arg-type]  # wrong on purpose


def test_fake_quant_takes_the_documented_arguments() -> None:
    spec = qconfig.default_fake_quant.with_args(
        observer=MinMaxObserver.with_args(), quant_min=0, quant_max=127
    )
    assert spec == FakeQuantSpec(MinMaxObserver.with_args(quant_min=0, quant_max=127))
    with pytest.raises(QConfigError, match="quant_mim"):
        spec.with_args(quant_mim=1)


def test_values_are_hashable_printable_and_pickle() -> None:
    assert len({A, B, C, get_default_qconfig("x86")}) == 3
    assert "HistogramObserver(reduce_range=True)" in repr(A)
    mapping = QConfigMapping(A, nodes={"x": B})
    assert pickle.loads(pickle.dumps(mapping)) == mapping


# precedence


def test_exact_name_beats_glob_beats_op_type_beats_global() -> None:
    mapping = QConfigMapping(C, {"Conv": A}, {"/l1/conv": B, "/l1/*": None})
    assert mapping.for_node("/l1/conv", "Conv") == B
    assert mapping.for_node("/l1/conv2", "Conv") is None
    assert mapping.for_node("/l2/conv", "Conv") == A
    assert mapping.for_node("/l2/add", "Add") == C
    assert QConfigMapping().for_node("n", "Conv") is None


@pytest.mark.parametrize("reverse", [False, True])
def test_the_more_specific_glob_wins_in_any_order(reverse: bool) -> None:
    entries: list[tuple[str, Entry]] = [("*", A), ("/l1/*", B), ("/l1/conv?", None)]
    mapping = QConfigMapping(nodes=dict(entries[::-1] if reverse else entries))
    assert mapping.for_node("/l1/conv1", "Conv") is None
    assert mapping.for_node("/l1/add", "Add") == B
    assert mapping.for_node("/head", "Gemm") == A


def test_a_name_with_brackets_is_found_exactly() -> None:
    mapping = QConfigMapping(A, nodes={"layer[0]": None})
    assert mapping.for_node("layer[0]", "Conv") is None
    mapping.check(set(), {"layer[0]"}, set())


def test_globs_tell_cases_apart() -> None:
    assert QConfigMapping(A, nodes={"conv*": None}).for_node("Conv1", "Conv") == A


def test_explicit_means_named_by_node_or_op_type() -> None:
    mapping = QConfigMapping(A, {"Softmax": A}, {"/l1/*": B})
    assert mapping.explicit_for_node("n", "Softmax")
    assert mapping.explicit_for_node("/l1/n", "Tanh")
    assert not mapping.explicit_for_node("n", "Tanh")


def test_tensors_have_their_own_observers() -> None:
    mapping = QConfigMapping(A, tensors={"x": SPEC, "y*": None})
    assert mapping.for_tensor("x") == SPEC
    assert mapping.for_tensor("y1") is None
    assert mapping.for_tensor("z") is NOT_SET


def test_setters_give_new_values() -> None:
    empty = QConfigMapping()
    made = empty.set_global(A).set_op_type("Conv", B).set_node("n", None).set_tensor("t", SPEC)
    assert made == QConfigMapping(A, {"Conv": B}, {"n": None}, {"t": SPEC})
    assert empty == QConfigMapping()


def test_a_mapping_does_not_change_with_its_source() -> None:
    source: dict[str, Entry] = {"Conv": A}
    mapping = QConfigMapping(op_types=source)
    source["Conv"] = None
    assert mapping.for_node("n", "Conv") == A


def test_values_of_a_mapping_are_checked() -> None:
    with pytest.raises(QConfigError, match="nodes 'n': got 'int8'"):
        QConfigMapping(nodes={"n": "int8"})  # type: ignore[dict-item]  # wrong on purpose
    with pytest.raises(QConfigError, match="tensors 't': got 3"):
        QConfigMapping(tensors={"t": 3})  # type: ignore[dict-item]  # wrong on purpose


def test_dynamic_entries_are_not_static() -> None:
    mapping = default_qconfig_mapping().set_op_type("LSTM", qconfig.default_dynamic_qconfig)
    assert mapping.entry_for_node("n", "LSTM") == qconfig.default_dynamic_qconfig
    assert mapping.for_node("n", "LSTM") is None
    assert mapping.has_dynamic
    assert not default_qconfig_mapping().has_dynamic


# check


def test_names_of_the_model_pass() -> None:
    mapping = QConfigMapping(A, {"Conv": A}, {"/l?/*": B, "head": A}, {"x": SPEC})
    mapping.check({"Conv"}, {"/l1/conv", "head"}, {"x", "y"})


def test_an_operator_of_onnx_need_not_occur() -> None:
    QConfigMapping(A, {"Softmax": None}).check({"Conv"}, set(), set())


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (QConfigMapping(op_types={"Convv": None}), r"op type 'Convv'.*Did you mean 'Conv'\?"),
        (QConfigMapping(nodes={"/l1/cnov": None}), r"node '/l1/cnov'.*mean '/l1/conv'\?"),
        (QConfigMapping(nodes={"/l9/*": None}), r"no node matches '/l9/\*' in the model, which"),
        (QConfigMapping(nodes={"*logi*": None}), r"tensor 'logits' has .*node that makes it"),
        (QConfigMapping(nodes={"logits": None}), r"tensor 'logits' has .*node that makes it"),
        (QConfigMapping(tensors={"logit": None}), r"tensor 'logit'.*mean 'logits'\?"),
    ],
)
def test_unknown_names_suggest_the_nearest(mapping: QConfigMapping, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        mapping.check({"Conv", "Add"}, {"/l1/conv"}, {"logits"})


def test_a_glob_is_not_taken_for_a_slip_in_an_operator_s_name() -> None:
    with pytest.raises(QConfigError) as error:
        QConfigMapping(nodes={"*conv_1*": None}).check({"Conv"}, {"n0"}, set())
    assert "Did you mean" not in str(error.value)


def test_names_of_yaml_are_entries_in_python() -> None:
    by_name = QConfigMapping(A).set_op_type("Conv", "default").set_node("fc*", "float")
    overrides = QConfigMapping(A).with_overrides(["op:Conv=default", "node:fc*=float"])
    assert by_name == overrides
    assert by_name.set_global("fbgemm").global_qconfig == get_default_qconfig("fbgemm")
    with pytest.raises(QConfigError, match=r"op_types 'Conv': qconfig 'defualt'.*mean 'default'"):
        by_name.set_op_type("Conv", "defualt")


# YAML

FULL = """
global: fbgemm
op_types:
  Softmax: null
  Conv:
    weight: {observer: NarrowRangeObserver}
  LSTM: {dynamic: {weight: {observer: MinMaxObserver, dtype: qint8}}}
nodes:
  /head/*: float
  /stem:
    activation: {fake_quantize: {observer: MovingAverageMinMaxObserver, averaging_constant: 0.1}}
    weight: PerChannelMinMaxObserver
tensors:
  logits: null
  "x:0": {observer: MinMaxObserver, reduce_range: true}
"""


def test_yaml_says_everything() -> None:
    mapping = QConfigMapping.from_yaml(FULL)
    assert mapping.global_qconfig == A
    assert mapping.op_types["Softmax"] is None
    # what an entry leaves out is the global entry's
    assert mapping.op_types["Conv"] == QConfig(A.activation, NarrowRangeObserver.with_args())
    assert isinstance(mapping.op_types["LSTM"], QConfigDynamic)
    assert mapping.nodes["/head/*"] is None
    stem = mapping.nodes["/stem"]
    assert isinstance(stem, QConfig)
    assert isinstance(stem.activation, FakeQuantSpec)
    assert mapping.tensors == {"logits": None, "x:0": SPEC}


@pytest.mark.parametrize(
    "mapping",
    [
        QConfigMapping(),
        default_qconfig_mapping(),
        default_qconfig_mapping("qnnpack"),
        QConfigMapping.from_yaml(FULL),
        QConfigMapping(get_default_qat_qconfig("fbgemm")),
        QConfigMapping(qconfig.float16_dynamic_qconfig, {"Gemm": qconfig.default_debug_qconfig}),
    ],
)
def test_yaml_round_trip(mapping: QConfigMapping, tmp_path: Path) -> None:
    text = mapping.to_yaml()
    assert QConfigMapping.from_yaml(text) == mapping
    (tmp_path / "q.yaml").write_text(text)
    assert QConfigMapping.from_yaml(tmp_path / "q.yaml") == mapping


def test_yaml_of_exceptions_only_has_the_default_elsewhere() -> None:
    mapping = QConfigMapping.from_yaml("nodes: {'/head/*': null}")
    assert mapping.global_qconfig == get_default_qconfig()
    assert QConfigMapping.from_yaml("") == default_qconfig_mapping()
    assert QConfigMapping.from_yaml("global: null") == QConfigMapping()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("globl: null", r"key 'globl' is not known.*Did you mean 'global'\?"),
        ("global: fbgem", r"qconfig 'fbgem' is not known.*Did you mean 'fbgemm'\?"),
        ("op_types: {Conv: {wieght: x}}", r"op_types 'Conv': key 'wieght'.*mean 'weight'\?"),
        ("nodes: {n: {weight: {observer: MinMax}}}", r"nodes 'n'\.weight: .*'MinMaxObserver'\?"),
        ("nodes: {n: {weight: {dtype: qint8}}}", "needs the key 'observer'"),
        (
            "tensors: {t: {observer: MinMaxObserver, reduce: true}}",
            r"tensors 't': .*'reduce'.*mean 'reduce_range'\?",
        ),
        ("nodes: {n: {}}", "nodes 'n': got {}"),
        ("nodes: {n: 8}", "nodes 'n': expected str | object | null, got int"),
        ("nodes: {n: {dynamic: {}}}", "wanted the key 'weight'"),
        ("nodes: {n: {dynamic: {weight: MinMaxObserver}, activation: x}}", "key 'activation'"),
        ("nodes: [a]", "nodes: got \\['a'\\]; wanted a mapping"),
        ("op_types: {1: null}", "wanted a mapping from names"),
        ("- a", "got list; wanted the keys"),
        ("a: [", "is not YAML"),
        ("nodes:\n  a: null\n  a: fbgemm", "line 3: key 'a' is repeated"),
        ("nodes: {n: !!python/name:os.system null}", "is not YAML"),
    ],
)
def test_yaml_is_strict(text: str, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        QConfigMapping.from_yaml(text)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(QConfigError, match=r"none\.yaml' cannot be read"):
        QConfigMapping.from_yaml(tmp_path / "none.yaml")
    (tmp_path / "odd.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(QConfigError, match=r"odd\.yaml' cannot be read"):
        QConfigMapping.from_yaml(tmp_path / "odd.yaml")


# documented qconfig_dict


def test_qconfig_dict_is_as_documented() -> None:
    mapping = QConfigMapping.from_dict(
        {
            "": A,
            "head": None,
            "layer1.*": B,
            "object_type": [("Conv", C), ("Softmax", None)],
            "module_name": [("stem", "default")],
        }
    )
    assert mapping == QConfigMapping(
        A,
        {"Conv": C, "Softmax": None},
        {"head": None, "layer1.*": B, "stem": get_default_qconfig()},
        choice=Choice.ALL_INTEGERS,
    )


def test_what_a_qconfig_dict_does_not_name_stays_float() -> None:
    mapping = QConfigMapping.from_dict({"head": A})
    assert mapping.for_node("other", "Conv") is None
    assert mapping.for_node("head", "Gemm") == A


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"module_name_regex": [("a.*", None)]}, "write a glob"),
        ({"object_type": [(MinMaxObserver, None)]}, "names of ONNX op types"),
        ({"object_type": "Conv"}, "wanted a list"),
        ({"head": {"wight": None}}, r"qconfig_dict 'head': key 'wight'.*'weight'\?"),
        ({"": "fbgem"}, r"mean 'fbgemm'\?"),
    ],
)
def test_qconfig_dict_is_strict(data: dict[str, object], message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        QConfigMapping.from_dict(data)


# the command line


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("global=float", QConfigMapping()),
        ("global=qnnpack", QConfigMapping(B)),
        ("op:Softmax=float", QConfigMapping(A, {"Softmax": None})),
        ("node:/l1/*=default_qconfig", QConfigMapping(A, nodes={"/l1/*": C})),
        ("tensor:input:0=float", QConfigMapping(A, tensors={"input:0": None})),
        (
            "tensor:a=b=MinMaxObserver",
            QConfigMapping(A, tensors={"a=b": MinMaxObserver.with_args()}),
        ),
        (
            "tensor:x={observer: MinMaxObserver, reduce_range: true}",
            QConfigMapping(A, tensors={"x": SPEC}),
        ),
        (
            "op:Conv={weight: {observer: NarrowRangeObserver}}",
            QConfigMapping(A, {"Conv": QConfig(A.activation, NarrowRangeObserver.with_args())}),
        ),
    ],
)
def test_overrides(text: str, wanted: QConfigMapping) -> None:
    assert QConfigMapping(A).with_overrides([text]) == wanted


def test_the_last_override_of_a_name_wins() -> None:
    mapping = QConfigMapping(A).with_overrides(["op:Conv=float", "op:Conv=qnnpack"])
    assert mapping.op_types == {"Conv": B}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op:Conv", "wanted global=VALUE"),
        ("op:Conv=", "wanted global=VALUE"),
        ("op:=float", "wanted global=VALUE"),
        ("Conv=float", "wanted global=VALUE"),
        ("global:x=float", "wanted global=VALUE"),
        ("nodes:x=float", r"Did you mean 'node'\?"),
        ("op:Conv=fbgem", r"override 'op:Conv=fbgem': .*mean 'fbgemm'\?"),
        ("tensor:x=MinMaxObservr", r"mean 'MinMaxObserver'\?"),
        ("op:Conv={weight", "is not YAML"),
    ],
)
def test_overrides_are_strict(text: str, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        QConfigMapping(A).with_overrides([text])


def test_all_public_names_exist() -> None:
    assert all(hasattr(qconfig, name) for name in qconfig.__all__)


# dynamic entries


def test_a_dynamic_entry_may_name_precision_and_block_size() -> None:
    text = (
        "global: dynamic_int8\n"
        "op_types:\n"
        "  Gemm: {dynamic: {precision: dynamic_int8}}\n"
        "  MatMul:\n"
        "    dynamic: {weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7},\n"
        "              precision: weight_only_groupwise, block_size: 64}\n"
    )
    mapping = QConfigMapping.from_yaml(text)
    assert mapping.global_qconfig == qconfig.onnxq_default_dynamic_qconfig
    weight = NarrowRangeObserver.with_args()
    assert mapping.op_types["Gemm"] == QConfigDynamic(weight, Precision.DYNAMIC_INT8)
    narrow = NarrowRangeObserver.with_args(dtype="int4", quant_max=7)
    assert mapping.op_types["MatMul"] == QConfigDynamic(narrow, Precision.WEIGHT_ONLY_GROUPWISE, 64)
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping


def test_a_block_size_asks_for_blocks() -> None:
    entry = QConfigDynamic(NarrowRangeObserver, block_size=64)  # type: ignore[arg-type]  # allowed
    assert entry == QConfigDynamic(
        NarrowRangeObserver.with_args(), Precision.WEIGHT_ONLY_GROUPWISE, 64
    )
    mapping = QConfigMapping.from_yaml("global: {dynamic: {block_size: 64}}")
    assert mapping.global_qconfig == entry
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping


def test_a_precision_may_be_given_by_its_name() -> None:
    entry = QConfigDynamic(NarrowRangeObserver, "weight_only")  # type: ignore[arg-type]  # allowed
    assert entry.precision is Precision.WEIGHT_ONLY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"op_types 'Gemm'.dynamic: got {}; wanted the key 'weight', 'precision'"),
        ("{precision: block}", "got 'block'; wanted one of dynamic_int8"),
        (
            "{precision: dynamic_int8, block_size: 32}",
            "block_size 32 with precision 'dynamic_int8'",
        ),
        ("{block_size: 0}", "block_size: got 0; wanted one of 16, 32"),
        ("{block_size: 24}", "block_size: got 24"),
        ("{block_size: 512}", "block_size: got 512"),
        ("{block_size: 32.0}", "block_size: expected int .*, got float"),
        ("{block_size: true}", "block_size: expected int .*, got bool"),
        ("{blocksize: 8}", "key 'blocksize' is not known.*'block_size'"),
        ("{weight: {observer: Narrow}}", "observer 'Narrow' is not known"),
    ],
)
def test_bad_dynamic_entries_are_refused(text: str, message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        QConfigMapping.from_yaml(f"op_types: {{Gemm: {{dynamic: {text}}}}}")


def test_a_file_of_exceptions_may_have_a_dynamic_rest() -> None:
    entry = qconfig.onnxq_default_dynamic_qconfig
    mapping = QConfigMapping.from_yaml("op_types: {Gemm: null}", entry)
    assert mapping == QConfigMapping(entry, {"Gemm": None})


# precisions


@pytest.mark.parametrize(
    "precision", [Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.FLOAT]
)
def test_a_precision_of_a_static_entry_round_trips(precision: Precision) -> None:
    entry = QConfig(A.activation, A.weight, precision)
    mapping = QConfigMapping(A, {"Gemm": entry}, {"head": replace(B, precision=precision)})
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping
    assert f"Gemm: {{precision: {precision.value}}}" in mapping.to_yaml().replace(
        "\n    ", " {", 1
    ).replace(f"precision: {precision.value}", f"precision: {precision.value}}}", 1)


def test_ready_made_names_say_the_precision() -> None:
    settings = ["int8", "int8_float_output", "weight_only", "dynamic_int8", "float"]
    mapping = QConfigMapping(A).with_overrides([f"node:{name}={name}" for name in settings])
    precisions = {name: getattr(entry, "precision", None) for name, entry in mapping.nodes.items()}
    assert precisions == {
        "int8": Precision.INT8,
        "int8_float_output": Precision.INT8_FLOAT_OUTPUT,
        "weight_only": Precision.WEIGHT_ONLY,
        "dynamic_int8": None,
        "float": None,
    }
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping


@pytest.mark.parametrize(
    "precision", [Precision.FLOAT_BETWEEN_QDQ, Precision.DYNAMIC_INT8, "integers"]
)
def test_a_precision_that_no_static_entry_has_is_refused(precision: Precision) -> None:
    with pytest.raises(QConfigError, match="wanted one of int8, int8_float_output, float"):
        QConfig(A.activation, A.weight, precision)


def test_a_precision_of_another_name_in_a_file_is_refused() -> None:
    with pytest.raises(QConfigError, match="op_types 'Gemm'"):
        QConfigMapping.from_yaml("op_types: {Gemm: {precision: integers}}")


def test_the_choice_round_trips_and_is_the_best_without_a_word() -> None:
    assert QConfigMapping.from_yaml("global: default").choice is Choice.BEST
    mapping = QConfigMapping(A).set_choice(Choice.ALL_INTEGERS)
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping
    with pytest.raises(QConfigError, match=r"choice 'all' is not known.*all_integers"):
        QConfigMapping.from_yaml("choice: all")


def test_a_backend_has_all_integers_as_pytorch_documents_it() -> None:
    assert default_qconfig_mapping("fbgemm").choice is Choice.ALL_INTEGERS
    assert default_qconfig_mapping().choice is Choice.BEST
