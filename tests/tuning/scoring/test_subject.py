from __future__ import annotations

from dataclasses import fields, replace

import pytest

import onnxq
from onnxq.operator import Precision
from onnxq.qconfig import default_qconfig_mapping, onnxq_default_qconfig
from onnxq.times import costs_of
from onnxq.tuning.scoring.subject import Subject, Wishes
from tests.examples import ALL_INTEGERS, network
from tests.small_networks import encoder_block

FORMED = replace(onnxq_default_qconfig, precision=Precision.FLOAT)
MODELS = ("model", "_calibration", "_excerpt")  # objects, of each its own


def test_settings_with_other_times_have_other_words() -> None:
    """A journal tells by them whether its scores are of the same wishes."""
    table = costs_of("x86-vnni")
    assert table is not None
    other = replace(table, timings=table.timings[1:])
    words = {str(Wishes(costs=each)) for each in (None, table, other)}
    assert len(words) == 3
    assert str(Wishes(costs=replace(table))) in words


@pytest.mark.parametrize("make", [network, encoder_block])
def test_a_candidate_takes_what_forms_do_not_change_from_the_first_one(make: object) -> None:
    model = make()  # type: ignore[operator]  # a function
    subject = Subject.of(model)
    first = subject.prepared(default_qconfig_mapping())
    name = next(iter(first.decisions))
    for mapping in (
        default_qconfig_mapping().set_node(name, FORMED),
        ALL_INTEGERS.set_node(name, FORMED),
        ALL_INTEGERS.set_improve(("bias",)),
    ):
        found, wanted = subject.prepared(mapping), onnxq.prepare(model, mapping)
        assert found.in_integers is first.in_integers
        for each in fields(wanted):
            if each.name not in MODELS:
                assert getattr(found, each.name) == getattr(wanted, each.name), each.name
