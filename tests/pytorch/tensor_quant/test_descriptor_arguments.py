from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import QConfigError
from onnxq.pytorch.tensor_quant import QuantDescriptor


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_bits": "8"},
        {"num_bits": 8.0},
        {"num_bits": (4, 3)},
        {"num_bits": True},
        {"name": 2.1},
        {"amax": 1},
        {"amax": "oops"},
        {"amax": ["oops"]},
        {"amax": (1.0, 2.0)},
        {"axis": 0.5},
        {"axis": "0"},
        {"axis": (0, "1")},
        {"axis": 0, "learn_amax": True},
        {"axis": (0, 1), "learn_amax": True},
        {"fake_quant": 1},
        {"learn_amax": "yes"},
        {"unsigned": None},
        {"narrow_range": 0},
        {"scale_amax": "2"},
        {"scale_amax": True},
        {"calib_method": 3},
        {"calib_metod": "max"},
    ],
)
def test_wrong_types_are_the_documented_type_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        QuantDescriptor(**arguments)
    assert isinstance(caught.value, QConfigError)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_bits": 1}, "2 to 16"),
        ({"num_bits": 0}, "2 to 16"),
        ({"num_bits": -8}, "2 to 16"),
        ({"num_bits": 17}, "2 to 16"),
        ({"amax": -1.0}, ">= 0"),
        ({"amax": [1.0, -1e-9]}, ">= 0"),
        ({"amax": float("nan")}, "finite"),
        ({"amax": 1e39}, "float32"),
        ({"amax": []}, "finite"),
        ({"axis": (0, 0)}, "twice"),
        ({"scale_amax": 0.0}, "positive"),
        ({"calib_method": "entropy"}, "load_calib_amax"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_wrong_values_are_a_value_error(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        QuantDescriptor(**arguments)
    assert isinstance(caught.value, QConfigError)
