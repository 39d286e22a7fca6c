"""Files that version 0.1 saved are read by today's code, and mean what they meant.

tests/saved/make.py made them; a later version gets a folder of its own beside this one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import onnxq
from onnxq import qtensor
from onnxq.checking.findings import Findings
from onnxq.checking.prediction import Prediction
from onnxq.operator import Precision
from onnxq.pytorch import convert, prepare_qat
from onnxq.pytorch.tensor_quant import QuantDescriptor
from onnxq.qconfig import QConfigMapping, get_default_qat_qconfig
from onnxq.static.statistics import Statistics
from tests.saved import samples
from tests.saved.make import descriptor, prepared_modules, run

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared

FOLDER = Path(__file__).parent / "saved" / "v0_1"
CLOSE: Any = {"rtol": 0, "atol": 1e-5}  # sums of at most 32 products of about 1, in any order


def words() -> torch.nn.Module:
    """`Words`, whose product has its result in codes, as every biased one had in version 0.1."""
    default = get_default_qat_qconfig()
    mapping = QConfigMapping(default).set_op_type(
        "MatMul", replace(default, precision=Precision.INT8)
    )
    return prepare_qat(samples.Words().train(), inputs=samples.ids(0), qconfig=mapping)


MADE = prepared_modules()
MODULES = {**MADE, "words": MADE["words"]._replace(fresh=words)}


def parsed(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def state(name: str) -> Any:
    return torch.load(FOLDER / f"{name}.pt", weights_only=True)


def prepared() -> Prepared:
    return onnxq.prepare(FOLDER / "float.onnx", samples.chain_qconfig(), "portable")


def test_statistics_give_the_qparams_that_they_gave() -> None:
    loaded = Statistics.load(FOLDER / "chain.stats")
    assert {name: one.spec for name, one in loaded.observers.items()} == samples.OBSERVERS
    found = {n: one.calculate_qparams().to_dict() for n, one in loaded.observers.items()}
    assert found == parsed("qparams.json")
    assert list(loaded.batches) == [0, 1, 2]


def test_statistics_go_on_where_they_ended() -> None:
    loaded = Statistics.load(FOLDER / "chain.stats")
    more = onnxq.calibrate(prepared(), samples.samples(), statistics=loaded)
    assert len(more.batches) == 6


@pytest.mark.parametrize("name", samples.ALL_OBSERVERS)
def test_an_observer_takes_its_state(name: str) -> None:
    with np.load(FOLDER / "observers.npz") as arrays:
        state = {k.partition("/")[2]: arrays[k] for k in arrays if k.startswith(f"{name}/")}
    observer = samples.ALL_OBSERVERS[name].restore(state)
    if name not in samples.WITHOUT_QPARAMS:
        assert observer.calculate_qparams().to_dict() == parsed("observers.json")[name]
    assert observer.state().keys() == state.keys()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Findings, "findings"),
        (Prediction, "prediction"),
    ],
)
def test_findings_read_back(kind: type[Findings | Prediction], name: str) -> None:
    path = FOLDER / f"{name}.json"
    assert held(json.loads(kind.load(path).to_json()), parsed(path.name)) == parsed(path.name)


def test_a_prediction_has_the_keys_that_it_had() -> None:
    then = Prediction.load(FOLDER / "prediction.json")
    known = [name for machine in then.machines for name in machine.targets]  # newer ones came since
    found = onnxq.predict(FOLDER / "int8.onnx", samples.samples(), known)
    then_saved = parsed("prediction.json")
    assert held(json.loads(found.to_json()), then_saved) == then_saved


def held(now: object, then: object) -> object:
    """The part of now that then has keys for, at any depth: newer ones may stand beside."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: held(now.get(key), value) for key, value in then.items()}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [held(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_yaml_of_a_qconfig_means_the_same() -> None:
    assert QConfigMapping.from_yaml(FOLDER / "qconfig.yaml") == samples.every_entry()


def test_yaml_of_a_descriptor_means_the_same() -> None:
    assert QuantDescriptor.from_yaml((FOLDER / "descriptor.yaml").read_text()) == descriptor()


@pytest.mark.parametrize("name", samples.tensors())
def test_a_quantized_tensor_reads_back(name: str) -> None:
    loaded, wanted = qtensor.load(FOLDER / f"{name}.npz"), samples.tensors()[name]
    assert loaded.qparams == wanted.qparams
    np.testing.assert_array_equal(loaded.int_repr(), wanted.int_repr())


@pytest.mark.parametrize("name", MODULES)
def test_a_prepared_module_takes_its_state_and_computes_the_same(name: str) -> None:
    fresh, _, x = MODULES[name]
    module = fresh()
    module.load_state_dict(state(name))
    with np.load(FOLDER / f"{name}.npz") as wanted:
        np.testing.assert_allclose(run(module, x), wanted["y"], **CLOSE)
        if "converted" in wanted:
            module.load_state_dict(state(name))  # its observers have just watched x
            converted = convert(module.eval())
            np.testing.assert_allclose(run(converted, x), wanted["converted"], **CLOSE)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "described"])
def test_a_converted_module_takes_its_state_and_computes_the_same(name: str) -> None:
    fresh, seen, x = MODULES[name]
    module = fresh()
    module(seen[0])  # other weights and ranges than those of the state
    converted = convert(module.eval())
    converted.load_state_dict(state(f"{name}.converted"))
    with np.load(FOLDER / f"{name}.npz") as wanted:
        np.testing.assert_allclose(run(converted, x), wanted["converted"], **CLOSE)
