"""Models and inputs of onnx.backend.test, as far as the onnx package holds them."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.checker
import onnx.version_converter
from onnx.backend.test import loader

from onnxq.graph.untrusted.check_model import NEWEST_OPSET, OLDEST_OPSET

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Kinds whose data come with the package; those of "real" are downloads."""
CONVERTED = 13
"""Opset that models below onnxq's oldest are converted to, as the refusal advises."""


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """A model of the suite.

    Attributes:
        name: "test_relu".
        model: as the suite has it.
        feeds: name -> input of its first data set; lists and None where it is no tensor.
        tolerances: rtol and atol, by which the suite compares outputs.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    tolerances: tuple[float, float]

    @property
    def has_tensors_only(self) -> bool:
        """Whether samples can be made of its inputs."""
        return all(isinstance(x, np.ndarray) for x in self.feeds.values())


@functools.cache
def _tests() -> dict[str, TestCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the suite's own formulas
        found = [test for kind in KINDS for test in loader.load_model_tests(kind=kind)]
    return {test.name: test for test in found}


def names() -> list[str]:
    """Every case, sorted."""
    return sorted(_tests())


def case(name: str) -> SuiteCase:
    """The case of that name."""
    test = _tests()[name]
    model = test.model
    if model is None:
        model = onnx.load(str(Path(str(test.model_dir)) / "model.onnx"))
    model = _of_known_opset(model)
    given = [value.name for value in model.graph.input]
    arrays = _inputs(test, model)
    feeds = dict(zip(given, arrays, strict=False))
    return SuiteCase(name, model, feeds, (test.rtol, test.atol))


def _of_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that onnxq takes, where it can be had in one.

    Older ones are converted, as the refusal advises. Newer ones (the suite gives each operator its
    newest schema) are taken for NEWEST_OPSET where onnx's checker finds them valid there.
    """
    opset = next((entry.version for entry in model.opset_import if not entry.domain), OLDEST_OPSET)
    if OLDEST_OPSET <= opset <= NEWEST_OPSET:
        return model
    try:
        if opset < OLDEST_OPSET:
            converted: onnx.ModelProto = onnx.version_converter.convert_version(model, CONVERTED)
            return converted
        lowered: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
        next(entry for entry in lowered.opset_import if not entry.domain).version = NEWEST_OPSET
        onnx.checker.check_model(lowered, full_check=True)
    except Exception:  # onnx raises what it likes; the model stays as it is, and is refused
        return model
    return lowered


def _inputs(test: TestCase, model: onnx.ModelProto) -> list[Any]:
    if test.data_sets:
        return [_as_array(x) for x in test.data_sets[0][0]]
    folder = Path(str(test.model_dir)) / "test_data_set_0"
    found: list[Any] = []
    for i, value in enumerate(model.graph.input):
        path = folder / f"input_{i}.pb"
        if not path.exists():  # an initializer that opset 3 lists among the inputs
            break
        if value.type.HasField("tensor_type"):
            found.append(onnx.numpy_helper.to_array(onnx.load_tensor(str(path))))
        else:
            sequence = onnx.SequenceProto.FromString(path.read_bytes())
            found.append(onnx.numpy_helper.to_list(sequence))
    return found


def _as_array(x: Any) -> Any:
    """The suite gives arrays, numbers, lists, protobufs, and None for an empty optional."""
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return x if x is None or isinstance(x, list) else np.asarray(x)
