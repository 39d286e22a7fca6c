from __future__ import annotations

from onnxq.pytorch.eager.add_observer import COMPUTING, IN_FLOAT_BETWEEN_INTEGERS, UNFOLDED
from onnxq.pytorch.train.conversion import QAT_MAPPING, STATIC_MAPPING


def test_what_is_observed_has_a_deployed_form_or_computes_in_float_between_integers() -> None:
    assert set(COMPUTING) - set(STATIC_MAPPING) == {*IN_FLOAT_BETWEEN_INTEGERS}


def test_what_trains_is_observed() -> None:
    assert set(QAT_MAPPING.values()) <= set(COMPUTING)
    assert set(QAT_MAPPING) <= {*COMPUTING, *UNFOLDED}


def test_what_is_not_observed_by_itself_moves_values_or_has_a_place_of_its_own() -> None:
    left = {kind.__name__ for kind in set(STATIC_MAPPING) - set(COMPUTING)}
    assert left == {"ReLU", "MaxPool2d", "DeQuantStub", "FakeQuantize", "FloatFunctional"}
