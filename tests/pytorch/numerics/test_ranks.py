"""Ranks of a distributed run: gloo, in processes of their own."""

from __future__ import annotations

import copy
import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel

from onnxq.errors import UnsupportedError
from onnxq.observers import HistogramObserver, MovingAverageMinMaxObserver, NarrowRangeObserver
from onnxq.pytorch import FakeQuantize, convert, prepare_qat, synchronize_ranks
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.pytorch.numerics import ranks
from onnxq.pytorch.numerics.ranks import check_not_sharded, has_ranks, widest_of_ranks

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 12  # of a whole batch: parts of 6 and of 4
STEPS = 5
RATE = 0.05
AVERAGING = 0.01  # weight of a new batch in the observers of the default qconfig


class Net(nn.Module):
    """Convolution with batch norm, a sum, a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.same, self.fc = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm(self.conv(x)))
        y = relu(y + self.same(y))
        return self.fc(y.mean((2, 3)))  # type: ignore[no-any-return]


def data() -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(ROWS, 3, 6, 6, generator=generator) * (i + 1) for i in range(STEPS)]
    return batches, torch.randint(5, (ROWS,), generator=generator)


def prepared() -> nn.Module:
    torch.manual_seed(0)
    model = prepare_qat(Net(), inputs=data()[0][0][:2])
    return model.apply(freeze_bn_stats)  # each rank would have statistics of its own part


def train(model: nn.Module, part: slice, *, updates: bool) -> None:
    batches, labels = data()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for x in batches:
        loss = cross_entropy(model(x[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if updates:
            optimizer.step()


def qparams(model: nn.Module) -> dict[str, Tensor]:
    endings = ("scale", "zero_point", "min_val", "max_val")
    return {k: v.clone() for k, v in model.state_dict().items() if k.endswith(endings)}


def digest(model: nn.Module) -> str:
    """Hash of every byte of the converted model."""
    state = convert(copy.deepcopy(model).eval()).state_dict()
    found = hashlib.sha256()
    for name, value in state.items():
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def run_rank(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    rows = ROWS // world
    part = slice(rank * rows, (rank + 1) * rows)
    found: dict[str, Any] = {}
    for updates in (False, True):
        model = prepared()
        train(DistributedDataParallel(model), part, updates=updates)
        found[f"qparams {updates}"], found[f"digest {updates}"] = qparams(model), digest(model)
    live: Any = prepare_qat(
        Net(), inputs=data()[0][rank][:2]
    )  # batch norm and examples of their own
    live.add_module("seen", FakeQuantize(HistogramObserver).disable_fake_quant())
    train(DistributedDataParallel(live), part, updates=True)
    live.seen(data()[0][0][part])
    synchronize_ranks(live)
    del found["digest False"]
    found["live"] = digest(live)
    found["histogram"] = live.seen.calculate_qparams()
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.nightly(nights=2)  # a process for each rank, which imports torch
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_ranks_observe_the_whole_batch_and_convert_to_the_same_bytes(
    world: int, tmp_path: Path
) -> None:
    multiprocessing.spawn(  # type: ignore[attr-defined,no-untyped-call]
        run_rank, (world, str(tmp_path)), nprocs=world
    )
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world)]
    for name in ("digest True", "live"):
        assert len({one[name] for one in found}) == 1, name
    alone = {}
    for updates in (False, True):
        model = prepared()
        train(model, slice(None), updates=updates)
        alone[updates] = qparams(model)
    for name, wanted in alone[False].items():
        assert torch.equal(found[0]["qparams False"][name], wanted), name
    for name, wanted in alone[True].items():
        if not name.startswith(("input", "x_")) and wanted.is_floating_point():
            assert_near(found[0]["qparams True"][name], wanted, name)
    whole = HistogramObserver()
    whole.observe(data()[0][0].numpy(), 0)
    assert found[0]["histogram"][0].item() == whole.calculate_qparams().scale


def assert_near(found: Tensor, wanted: Tensor, name: str) -> None:
    """Ends of a batch differ where rounding tips over: by few steps of 255, say a tenth of them.

    Of that the observers take 1 - (1 - AVERAGING)^STEPS.
    """
    bound = 0.1 * (1 - (1 - AVERAGING) ** STEPS)
    assert (found - wanted).abs().max() <= bound * wanted.abs().max() + 1e-6, name


def test_alone_there_are_no_ranks_and_nothing_to_bring_together() -> None:
    assert not has_ranks()
    model = prepared()
    before = qparams(model)
    synchronize_ranks(model)
    assert all(torch.equal(value, before[name]) for name, value in qparams(model).items())


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """This process as rank 0 of two; the list has what the other one brings, in turn."""
    theirs: list[Tensor] = []

    def all_reduce(tensor: Tensor, op: Any = distributed.ReduceOp.SUM) -> None:
        other = theirs.pop(0)
        tensor.copy_(torch.maximum(tensor, other) if op == distributed.ReduceOp.MAX else other)

    monkeypatch.setattr(ranks, "has_ranks", lambda: True)
    monkeypatch.setattr("onnxq.pytorch.numerics.observing.has_ranks", lambda: True)
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    return theirs


def test_activations_in_training_are_those_of_all_ranks_and_weights_of_this_one(
    two_ranks: list[Tensor],
) -> None:
    x = torch.tensor([[-1.0, 2.0], [0.5, 1.0]])
    fake = FakeQuantize(MovingAverageMinMaxObserver)
    two_ranks.append(torch.tensor([0.5, 10.0]))  # (-min, max) there
    fake(x)
    assert (fake.min_val.item(), fake.max_val.item()) == (-1.0, 10.0)
    fake.eval()(x)  # asks no rank: one may evaluate alone
    weight = FakeQuantize(NarrowRangeObserver)
    weight.is_replicated = True
    weight(x)
    assert two_ranks == []


def test_nan_on_one_rank_is_left_out_on_all(two_ranks: list[Tensor]) -> None:
    fake = FakeQuantize(MovingAverageMinMaxObserver)
    two_ranks += [torch.tensor([torch.inf, 1.0]), torch.tensor([0.5, 1.0])]
    fake(torch.ones(3))
    fake(torch.full((3,), torch.nan))
    assert int(fake.left_out) == 2


def test_an_empty_part_takes_part(two_ranks: list[Tensor]) -> None:
    fake = FakeQuantize(MovingAverageMinMaxObserver)
    two_ranks.append(torch.tensor([0.5, 1.0]))
    fake(torch.empty(0, 3))
    assert fake.max_val.item() == 1.0


def test_the_widest_of_nan_and_a_number_is_infinite(two_ranks: list[Tensor]) -> None:
    two_ranks.append(torch.tensor([1.0, 1.0]))
    assert widest_of_ranks(torch.tensor([torch.nan, 2.0])).tolist() == [torch.inf, 2.0]


def test_join_is_refused_while_observers_watch(
    two_ranks: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = SimpleNamespace(_join_config=SimpleNamespace(enable=True))
    monkeypatch.setattr(DistributedDataParallel, "_active_ddp_module", joined)
    fake = FakeQuantize(MovingAverageMinMaxObserver)
    with pytest.raises(UnsupportedError, match="same number of batches"):
        fake(torch.ones(3))
    two_ranks.append(torch.tensor([0.5, 1.0]))
    joined._join_config.enable = False
    fake(torch.ones(3))
    joined._join_config.enable = True
    fake.disable_observer()(torch.ones(3))


def test_shards_are_refused_in_words() -> None:
    class DTensor(nn.Parameter):
        """Named as torch's, which needs a mesh of devices."""

    model = nn.Linear(2, 2)
    model.register_parameter("weight", DTensor(torch.ones(2, 2)))
    with pytest.raises(UnsupportedError, match=r"convert: 'weight' is a shard.*FSDP.*Distributed"):
        check_not_sharded(model, "convert")
