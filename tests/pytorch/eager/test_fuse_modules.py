from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from onnxq.errors import ModelError, QConfigError, UnsupportedError
from onnxq.pytorch import fuse_known_modules, fuse_modules, fuse_modules_qat
from onnxq.pytorch.nn import intrinsic


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.head = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
        nn.init.normal_(self.bn.bias)
        assert self.bn.running_mean is not None
        nn.init.normal_(self.bn.running_mean)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.relu(self.bn(self.conv(x))).mean((2, 3)))


GROUPS = [["conv", "bn", "relu"], ["head.0", "head.1"]]
X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def with_norm(rank: int, *more: nn.Module) -> list[nn.Module]:
    conv: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    norm: Any = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
    return [conv(2, 3, 1), norm(3), *more]


def test_batch_norm_is_folded_in_eval_mode_and_the_model_computes_the_same() -> None:
    net = Net().eval()
    fused: Any = fuse_modules(net, GROUPS)
    assert isinstance(fused.conv, intrinsic.ConvReLU2d)
    assert isinstance(fused.bn, nn.Identity)
    assert isinstance(fused.relu, nn.Identity)
    assert isinstance(fused.head[0], intrinsic.LinearReLU)
    assert torch.allclose(fused(X), net(X), atol=1e-5)
    assert type(net.conv) is nn.Conv2d, "the model itself is left as it is"


def test_batch_norm_is_kept_in_train_mode() -> None:
    fused: Any = fuse_modules(Net().train(), GROUPS)
    assert isinstance(fused.conv, intrinsic.ConvBnReLU2d)
    assert [type(m) for m in fused.conv] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]


def test_in_place_changes_the_model_itself() -> None:
    net = Net().eval()
    assert fuse_modules(net, ["conv", "bn"], inplace=True) is net
    assert type(net.conv) is nn.Conv2d
    assert isinstance(net.bn, nn.Identity)


@pytest.mark.parametrize(
    ("modules", "evaluated", "trained"),
    [
        (with_norm(1), nn.Conv1d, intrinsic.ConvBn1d),
        (with_norm(2), nn.Conv2d, intrinsic.ConvBn2d),
        (with_norm(3), nn.Conv3d, intrinsic.ConvBn3d),
        (with_norm(1, nn.ReLU()), intrinsic.ConvReLU1d, intrinsic.ConvBnReLU1d),
        (with_norm(2, nn.ReLU()), intrinsic.ConvReLU2d, intrinsic.ConvBnReLU2d),
        (with_norm(3, nn.ReLU()), intrinsic.ConvReLU3d, intrinsic.ConvBnReLU3d),
        ([nn.Conv1d(1, 1, 1), nn.ReLU()], intrinsic.ConvReLU1d, intrinsic.ConvReLU1d),
        ([nn.Conv2d(1, 1, 1), nn.ReLU()], intrinsic.ConvReLU2d, intrinsic.ConvReLU2d),
        ([nn.Conv3d(1, 1, 1), nn.ReLU()], intrinsic.ConvReLU3d, intrinsic.ConvReLU3d),
        ([nn.Linear(1, 1), nn.ReLU()], intrinsic.LinearReLU, intrinsic.LinearReLU),
        ([nn.Linear(2, 3), nn.BatchNorm1d(3)], nn.Linear, intrinsic.LinearBn1d),
        ([nn.BatchNorm2d(2), nn.ReLU()], intrinsic.BNReLU2d, intrinsic.BNReLU2d),
        ([nn.BatchNorm3d(2), nn.ReLU()], intrinsic.BNReLU3d, intrinsic.BNReLU3d),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_every_pattern(
    modules: list[nn.Module], evaluated: type[nn.Module], trained: type[nn.Module]
) -> None:
    for mode, wanted in ((True, trained), (False, evaluated)):
        fused, *rest = fuse_known_modules([m.train(mode) for m in modules])
        assert type(fused) is wanted
        assert fused.training is mode
        assert [type(m) for m in rest] == [nn.Identity] * (len(modules) - 1)


@pytest.mark.parametrize("training", [True, False])
def test_hooks_before_the_first_and_after_the_last_run_once(training: bool) -> None:
    net, seen = Net().train(training), []
    net.conv.register_forward_pre_hook(lambda *_: seen.append("before"))
    net.relu.register_forward_hook(lambda *_: seen.append("after"))
    fuse_modules(net, GROUPS, inplace=True)(X)
    assert seen == ["before", "after"]


def test_hooks_in_between_are_dropped_with_a_warning() -> None:
    net, seen = Net().eval(), []
    net.conv.register_forward_hook(lambda *_: seen.append("inner"))
    with pytest.warns(UserWarning, match="hooks between the modules .Conv2d. are dropped"):
        fused = fuse_modules(net, GROUPS)
    fused(X)
    assert not seen


def test_a_qconfig_of_the_first_module_is_kept() -> None:
    net: Any = Net().eval()
    net.conv.qconfig = "mine"
    fused: Any = fuse_modules(net, GROUPS)
    assert fused.conv.qconfig == "mine"


def test_other_patterns_can_be_given() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).eval()
    more = {"additional_fuser_method_mapping": {(nn.Linear, nn.Tanh): nn.Sequential}}
    fused = fuse_modules(net, ["0", "1"], fuse_custom_config_dict=more)
    assert isinstance(fused[0], nn.Sequential)  # type: ignore[index]


def test_a_misspelt_key_is_refused() -> None:
    config: dict[str, object] = {"additional_fuser_method_maping": {}}
    with pytest.raises(QConfigError, match=r"not known.*additional_fuser_method_mapping"):
        fuse_modules(Net().eval(), GROUPS, fuse_custom_config_dict=config)


def test_fuse_modules_qat_is_for_train_mode() -> None:
    fused: Any = fuse_modules_qat(Net().train(), GROUPS)
    assert isinstance(fused.conv, intrinsic.ConvBnReLU2d)
    with pytest.raises(ModelError, match=r"is in eval mode. Call model.train\(\)"):
        fuse_modules_qat(Net().eval(), GROUPS)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["con", "bn"], QConfigError, "no module 'con'. Did you mean 'conv'?"),
        ([""], QConfigError, "no module ''"),
        ("conv", QConfigError, "got 'conv'; wanted a list of names"),
        ([["conv", "conv"]], QConfigError, "each name once"),
        ([[]], QConfigError, "wanted a list of names"),
        (["bn", "conv"], UnsupportedError, r"stands for \(BatchNorm2d, Conv2d\); known: "),
        (["relu", "bn"], UnsupportedError, r"\['relu', 'bn'\]: fuse_modules: no module stands"),
    ],
)
def test_wrong_names(names: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fuse_modules(Net().eval(), names)


def test_mixed_modes_are_refused() -> None:
    net = Net().train()
    net.bn.eval()
    with pytest.raises(ModelError, match=r"BatchNorm2d.training=False"):
        fuse_modules(net, GROUPS)


def test_batch_norm_without_statistics_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, track_running_stats=False)).eval()
    with pytest.raises(ModelError, match="no running statistics"):
        fuse_modules(net, ["0", "1"])


def test_a_fuser_returns_as_many_modules() -> None:
    with pytest.raises(QConfigError, match=r"returned 1 modules for \['conv', 'bn'\]"):
        fuse_modules(Net().eval(), ["conv", "bn"], fuser_func=lambda modules, _: modules[:1])


def test_a_subclass_does_not_stand_for_its_base() -> None:
    class Mine(nn.Conv2d):
        pass

    with pytest.raises(UnsupportedError, match=r"\(Mine, ReLU\)"):
        fuse_modules(nn.Sequential(Mine(1, 1, 1), nn.ReLU()).eval(), ["0", "1"])
    with pytest.raises(ModelError, match=r"got \(Mine, ReLU\); wanted \(Conv2d, ReLU\)"):
        intrinsic.ConvReLU2d(Mine(1, 1, 1), nn.ReLU())
