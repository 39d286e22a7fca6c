from __future__ import annotations

import importlib
import logging
import warnings

import pytest
from torch import nn

from onnxq.pytorch.exporting.quiet import quiet_exporter

LOGGERS = [
    "torch.onnx._internal.exporter._registration",
    "onnxscript.optimizer._constant_folding",
    "onnx_ir.passes.common.initializer_deduplication",
]


def test_torchs_words_about_itself_are_held_back() -> None:
    with quiet_exporter():
        warnings.warn(
            "_check_is_size will be removed in a future release", FutureWarning, stacklevel=1
        )
        warnings.warn(
            "# The axis name: batch will not be used, since ...", UserWarning, stacklevel=1
        )


def test_other_warnings_reach_the_callers_filters() -> None:
    with pytest.warns(UserWarning, match="your module") as caught, quiet_exporter():
        warnings.warn("your module does this", UserWarning, stacklevel=1)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm.*:FutureWarning")
def test_weights_that_torchs_own_hooks_assign_are_no_news_and_other_attributes_are() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.utils.weight_norm(nn.Linear(2, 2)))
    nn.utils.spectral_norm(inner[0])
    model = nn.ModuleDict({"inner": inner})
    said = "The tensor attributes %s were assigned during export. Such attributes must be"
    with quiet_exporter(model):
        warnings.warn(said % "self.inner.0.weight, self.inner.1.weight", UserWarning, stacklevel=1)
    with pytest.warns(UserWarning, match="self.cache"), quiet_exporter(model):
        warnings.warn(said % "self.inner.0.weight, self.cache", UserWarning, stacklevel=1)


def test_a_warning_of_another_category_is_not_mistaken() -> None:
    with pytest.warns(DeprecationWarning, match="_check_is_size"), quiet_exporter():
        warnings.warn("_check_is_size will be removed", DeprecationWarning, stacklevel=1)


def test_an_error_filter_cannot_break_what_runs_inside() -> None:
    reached = []

    def export() -> None:
        with quiet_exporter():
            warnings.warn("mine", UserWarning, stacklevel=1)
            reached.append(True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="mine"):
            export()
    assert reached


@pytest.mark.parametrize("name", LOGGERS)
def test_the_loggers_level_is_put_back_also_after_an_error(name: str) -> None:
    importlib.import_module(name)  # a logger of another name would be silent for nobody
    logger = logging.getLogger(name)
    before, levels = logger.level, []

    def fail() -> None:
        with quiet_exporter():
            levels.append(logger.level)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert levels == [logging.ERROR]
    assert logger.level == before
