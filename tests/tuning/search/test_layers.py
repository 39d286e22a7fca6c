from __future__ import annotations

from onnxq.operator import Precision
from onnxq.tuning.search.quantization_groups import (
    Layers,
    Member,
    QuantizationGroup,
    by_layer_type,
    sensitive_parts,
)

PRECISIONS = (Precision.FLOAT, Precision.INT8)


def group(name: str, layer_type: str = "Conv") -> QuantizationGroup:
    return QuantizationGroup(
        Member(name, "Conv"), (Member(f"{name}/relu", "Relu"),), layer_type, PRECISIONS
    )


def test_groups_of_one_layer_type_are_one_group() -> None:
    groups = by_layer_type([group("/a/1"), group("/b", "Gemm"), group("/a/2")])
    assert [group.name for group in groups] == ["2 x Conv, /a/1 .. 2", "Gemm, /b"]


def test_group_has_all_nodes_of_its_groups() -> None:
    assert Layers((group("/a"),)).node_group.nodes == ("/a", "/a/relu")


def test_parts_keep_every_group_in_order() -> None:
    layers = Layers(tuple(group(f"/layer{i}") for i in range(10)))
    parts = layers.parts(4)
    assert tuple(each for part in parts for each in part.groups) == layers.groups
    assert [len(part.groups) for part in parts] == [2, 3, 2, 3]
    assert len(Layers(layers.groups[:2]).parts(4)) == 2


def test_parts_of_the_dearest_layer_types_are_measured_next() -> None:
    dear = Layers((group("/a/1"), group("/a/2")))
    cheap = Layers((group("/b/1", "Gemm"), group("/b/2", "Gemm")))
    noise = {dear.name: 1.0, cheap.name: 1e-3}
    assert sensitive_parts([cheap, dear], noise) == dear.parts(2)
