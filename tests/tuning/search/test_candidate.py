from __future__ import annotations

from onnxq.observers import MinMaxObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfig, QConfigDynamic, QConfigMapping, onnxq_default_qconfig
from onnxq.tuning.search.candidate import (
    PER_TENSOR,
    ActivationObserver,
    AlgorithmChange,
    Candidate,
    PrecisionChange,
    WeightsPerTensor,
    precision_in,
    with_precision,
)
from onnxq.tuning.search.quantization_groups import Member, QuantizationGroup

PRECISIONS = (
    Precision.FLOAT,
    Precision.INT8,
    Precision.INT8_FLOAT_OUTPUT,
    Precision.DYNAMIC_INT8,
    Precision.WEIGHT_ONLY,
)
BIAS, RELU, SUM = Member("/add", "Add", inside=True), Member("/relu", "Relu", True, True), "/sum"
MATMUL = QuantizationGroup(
    Member("/mm", "MatMul"), (BIAS, RELU, Member(SUM, "Add")), "MatMul", PRECISIONS, 100
)
START = with_precision(QConfigMapping(onnxq_default_qconfig), MATMUL, Precision.INT8)


def form_of(mapping: QConfigMapping, node: str) -> Precision | None:
    entry = mapping.nodes[node]
    assert isinstance(entry, QConfig)
    return entry.precision


def test_every_form_is_read_as_it_was_named() -> None:
    for precision in PRECISIONS:
        assert precision_in(with_precision(START, MATMUL, precision), MATMUL) is precision


def test_bias_stays_within_a_matmul_with_a_float_result_and_the_rest_is_float() -> None:
    mapping = with_precision(START, MATMUL, Precision.INT8_FLOAT_OUTPUT)
    assert form_of(mapping, "/add") is Precision.INT8
    assert form_of(mapping, "/relu") is form_of(mapping, SUM) is Precision.FLOAT


def test_dynamic_form_names_the_weights_of_the_global_entry() -> None:
    entry = with_precision(START, MATMUL, Precision.DYNAMIC_INT8).nodes["/mm"]
    assert isinstance(entry, QConfigDynamic)
    assert entry.weight == onnxq_default_qconfig.weight


def test_changes_back_leaves_the_start_as_it_was() -> None:
    start = Candidate(START, (MATMUL,))
    there = start.with_changes([PrecisionChange(MATMUL, Precision.FLOAT)])
    assert there.mapping != START
    assert there.with_changes([PrecisionChange(MATMUL, Precision.INT8)]) == start
    assert start.mapping == START


def test_words_name_form_and_nodes() -> None:
    there = Candidate(START, (MATMUL,)).with_changes([PrecisionChange(MATMUL, Precision.FLOAT)])
    observer = ActivationObserver(MinMaxObserver.with_args())
    words = there.also(observer, AlgorithmChange("bias")).words
    assert words == ("float: MatMul, /mm", "activations by MinMaxObserver", "improve: bias")


def test_words_name_the_shorter_list() -> None:
    """Four layer types, of which one or none stays in integers."""
    groups = tuple(
        QuantizationGroup(
            Member(f"/{layer_type}", layer_type), (), layer_type, (Precision.FLOAT, Precision.INT8)
        )
        for layer_type in ("Conv", "Gemm", "Mul", "Sum")
    )
    start = QConfigMapping(onnxq_default_qconfig)
    for group in groups:
        start = with_precision(start, group, Precision.INT8)

    def words(count: int) -> tuple[str, ...]:
        changes = [PrecisionChange(group, Precision.FLOAT) for group in groups[:count]]
        return Candidate(start, groups).with_changes(changes).words

    assert words(4) == ("float: all",)
    assert words(3) == ("float: all but Sum, /Sum",)
    assert words(2) == ("float: Conv, /Conv", "float: Gemm, /Gemm")


def test_forms_of_nodes_are_those_of_the_mapping() -> None:
    begun = {member.name: Precision.INT8 for member in MATMUL.members}
    there = Candidate(START, (MATMUL,)).with_changes(
        [PrecisionChange(MATMUL, Precision.INT8_FLOAT_OUTPUT)]
    )
    precisions = there.node_precisions(begun)
    named = {name: form_of(there.mapping, name) for name in begun}
    assert named.pop("/add") is Precision.INT8
    assert precisions == {**named, "/add": None}  # inside of the MatMul


def test_observer_replaces_the_default_alone() -> None:
    own = QConfig(MinMaxObserver.with_args(reduce_range=True), onnxq_default_qconfig.weight)
    start = Candidate(START.set_node("/own", own), (MATMUL,))
    mapping = start.also(ActivationObserver(MinMaxObserver.with_args())).mapping
    assert mapping.nodes["/own"] == own
    changed = mapping.nodes["/mm"]
    assert isinstance(changed, QConfig)
    assert changed.activation == MinMaxObserver.with_args()


def test_scales_of_weights_replace_the_default_alone_in_every_form() -> None:
    own = QConfig(onnxq_default_qconfig.activation, MinMaxObserver.with_args())
    start = with_precision(START.set_node("/own", own), MATMUL, Precision.DYNAMIC_INT8)
    mapping = WeightsPerTensor((MATMUL,)).applied(start)
    assert mapping.nodes["/own"] == own
    entry = mapping.nodes["/mm"]
    assert isinstance(entry, QConfigDynamic)
    assert entry.weight == PER_TENSOR


def test_improvement_is_asked_for_behind_others() -> None:
    asked = AlgorithmChange("bias").applied(START.set_improve(("smooth",)))
    assert asked.improve == ("smooth", "bias")
