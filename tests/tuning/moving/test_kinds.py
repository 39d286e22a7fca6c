from __future__ import annotations

from onnxq.operator import Precision
from onnxq.tuning.moving.kinds import Alike, apart, by_kind, dearest_parts
from onnxq.tuning.moving.units import Member, Unit

FORMS = (Precision.FLOAT, Precision.INT8)


def unit(name: str, kind: str = "Conv") -> Unit:
    return Unit(Member(name, "Conv"), (Member(f"{name}/relu", "Relu"),), kind, FORMS)


def test_units_of_one_kind_are_one_group() -> None:
    groups = by_kind([unit("/a/1"), unit("/b", "Gemm"), unit("/a/2")])
    assert [group.name for group in groups] == ["2 x Conv, /a/1 .. 2", "Gemm, /b"]


def test_group_has_all_nodes_of_its_units() -> None:
    assert Alike((unit("/a"),)).group.nodes == ("/a", "/a/relu")


def test_parts_keep_every_unit_in_order() -> None:
    group = Alike(tuple(unit(f"/layer{i}") for i in range(10)))
    parts = group.parts(4)
    assert tuple(u for part in parts for u in part.units) == group.units
    assert [len(part.units) for part in parts] == [2, 3, 2, 3]
    assert len(Alike(group.units[:2]).parts(4)) == 2


def test_parts_of_the_dearest_kinds_are_measured_next() -> None:
    dear = Alike((unit("/a/1"), unit("/a/2")))
    cheap = Alike((unit("/b/1", "Gemm"), unit("/b/2", "Gemm")))
    noise = {dear.name: 1.0, cheap.name: 1e-3}
    assert dearest_parts([cheap, dear], noise) == dear.parts(2)


def test_parts_that_were_measured_stand_for_what_they_are_parts_of() -> None:
    dear = Alike((unit("/a/1"), unit("/a/2")))
    cheap = Alike((unit("/b/1", "Gemm"), unit("/b/2", "Gemm")))
    parts = dear.parts(2)
    noise = {dear.name: 1.0, cheap.name: 0.3, parts[0].name: 0.1, parts[1].name: 0.8}
    assert apart([dear, cheap, *parts], noise) == (parts[1], cheap, parts[0])
