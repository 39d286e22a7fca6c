"""Tables of mixed bits."""

from __future__ import annotations

import math

from onnxq.report.print_verdict import mixed_json, mixed_rows
from onnxq.weights.mixed_bits import Mix, Mixed
from onnxq.weights.weight_plan import WeightPlan

SMALL = Mix({"a": 2, "b": 4}, 3.0, 2e6, 0.01)
WHOLE = Mix({"a": 32, "b": 32}, 32.0, 9e6, 0.0)


def test_rows_stand_in_the_order_of_size_and_the_choice_is_marked() -> None:
    mixed = Mixed(WeightPlan({}), SMALL, (SMALL, WHOLE), None)
    header, rows = mixed_rows(mixed)
    assert header[-4:] == ("2 bits", "4 bits", "8 bits", "float")
    assert rows == [
        ("chosen", "3.00", "2.00", "20.0", "1", "1", "0", "0"),
        ("", "32.00", "9.00", f"{math.inf}", "0", "0", "0", "2"),
    ]


def test_no_noise_has_no_number_in_json() -> None:
    told = mixed_json(Mixed(WeightPlan({}), WHOLE, (SMALL, WHOLE), None))
    assert told["chosen"] == {
        "bits_average": 32.0,
        "weight_bytes": 9e6,
        "predicted_sqnr_db": None,
        "linear_layers": {"2 bits": 0, "4 bits": 0, "8 bits": 0, "float": 2},
        "bits": {"a": 32, "b": 32},
    }
