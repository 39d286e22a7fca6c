"""Training with FakeQuantize under autocast, torch.compile and torch.export."""

from __future__ import annotations

import copy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.observers import HistogramObserver, MovingAverageMinMaxObserver, NarrowRangeObserver
from onnxq.pytorch import FakeQuantize, LearnableFakeQuantize, disable_observer, export

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = [FakeQuantize, LearnableFakeQuantize]
STEPS = 6
OBSERVED = 3  # steps before the observers rest
COMPILER = shutil.which("g++") or shutil.which("clang++")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # dynamo asks for it
]


class Net(nn.Module):
    """Conv, ReLU, Linear, all rounded; small enough to compile in seconds."""

    def __init__(self, kind: type[FakeQuantize]) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 * 16, 4)
        self.x_fake, self.y_fake = (kind(MovingAverageMinMaxObserver) for _ in range(2))
        self.w_fake = kind(NarrowRangeObserver, quant_max=7)
        self.v_fake = kind(NarrowRangeObserver)

    def forward(self, x: Tensor) -> Tensor:
        x = self.x_fake(x)
        x = functional.conv2d(x, self.w_fake(self.conv.weight), self.conv.bias)
        x = self.y_fake(functional.relu(x))
        return functional.linear(x.flatten(1), self.v_fake(self.fc.weight), self.fc.bias)


def task() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 3, 6, 6, generator=generator)
    return x, (x.mean((2, 3)) @ torch.randn(3, 4, generator=generator)).argmax(1)


def losses(net: nn.Module, forward: Callable[[Tensor], Tensor], *, half: bool) -> list[float]:
    """The loss of each step of training."""
    x, labels = task()
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    found = []
    for step in range(STEPS):
        if step == OBSERVED:
            net.apply(disable_observer)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = functional.cross_entropy(forward(x), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_trains_under_autocast_in_bfloat16(kind: type[FakeQuantize]) -> None:
    net = Net(kind)
    x, _ = task()
    found = losses(net, net, half=True)
    assert found[-1] < found[0]
    for fake in (net.x_fake, net.y_fake, net.w_fake, net.v_fake):
        assert fake.scale.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        hidden = functional.conv2d(net.x_fake(x), net.w_fake(net.conv.weight), net.conv.bias)
        rounded = net.y_fake(hidden)
    assert hidden.dtype == rounded.dtype == torch.bfloat16
    exact = net.y_fake(hidden.float())  # computed in float32, and rounded to bfloat16 once
    assert torch.equal(rounded, exact.to(torch.bfloat16))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "half"),
    [(FakeQuantize, False), (FakeQuantize, True), (LearnableFakeQuantize, False)],
    ids=["float32", "bfloat16", "learned"],
)
def test_compiled_training_is_eager_training(kind: type[FakeQuantize], half: bool) -> None:
    net = Net(kind)
    twin = copy.deepcopy(net)
    compiled: Any = torch.compile(net, backend="aot_eager")
    assert losses(net, compiled, half=half) == losses(twin, twin, half=half)
    for (name, ours), theirs in zip(
        net.state_dict().items(), twin.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name


@pytest.mark.skipif(COMPILER is None, reason="torch.compile's inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # inductor warns of its own code and of the machine
@pytest.mark.nightly  # compiles C++ for half a minute
def test_inductor_trains_as_eager_does() -> None:
    net = Net(FakeQuantize)
    twin = copy.deepcopy(net)
    compiled: Any = torch.compile(net, fullgraph=True)
    wanted = losses(twin, twin, half=False)
    assert losses(net, compiled, half=False) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_observes_rounds_and_trains_from_the_first_batch_on(backend: str) -> None:
    net = Net(FakeQuantize)
    twin = copy.deepcopy(net)
    compiled: Any = torch.compile(net, backend=backend, fullgraph=True)
    assert losses(net, compiled, half=False) == losses(twin, twin, half=False)
    theirs = twin.state_dict()
    for name, ours in net.state_dict().items():
        assert torch.equal(ours, theirs[name]), name


@pytest.mark.nightly
def test_one_graph_learns_scales_once_a_batch_was_seen() -> None:
    net, (x, _) = Net(LearnableFakeQuantize), task()
    compiled: Any = torch.compile(net, backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="run one batch"):
        compiled(x)
    net(x)
    twin = copy.deepcopy(net)
    assert losses(net, compiled, half=False) == losses(twin, twin, half=False)


@pytest.mark.nightly
def test_an_observer_that_is_numpy_is_refused_in_one_graph_until_it_rests() -> None:
    net, (x, _) = Net(FakeQuantize), task()
    net.y_fake = FakeQuantize(HistogramObserver)
    compiled: Any = torch.compile(net, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"disable_observer\(\) first"):
        compiled(x)
    net(x)
    net.apply(disable_observer)
    assert torch.equal(compiled(x), net(x))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_traces_under_torch_export_without_observing(
    kind: type[FakeQuantize], strict: bool
) -> None:
    net, (x, _) = Net(kind), task()
    net(x)
    before = copy.deepcopy(net.state_dict())
    program = torch.export.export(net.eval(), (x * 10,), strict=strict)
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called.count("onnxq.fake_quantize.default") == 4
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    net.apply(disable_observer)
    assert torch.equal(program.module()(x), net(x))


def test_what_was_trained_arrives_in_onnx_runtime() -> None:
    torch.manual_seed(0)
    first, last = FakeQuantize(), LearnableFakeQuantize()
    net = nn.Sequential(first, nn.Conv2d(3, 8, 3), nn.ReLU(), last, nn.Flatten(), nn.Linear(128, 4))
    losses(net, net, half=False)
    x, _ = task()
    # ONNX Runtime may sum the convolution in another order, and a value tip over: a step of `last`
    step = last.scale.item() * 8
    model = export(net.eval(), x, tolerance=step / net(x).abs().max().item())
    scales = {
        value.name: value.const_value.numpy().item()
        for value in model.graph.initializers.values()
        if value.const_value is not None and value.const_value.shape == ()
    }
    for fake in (first, last):
        assert fake.scale.item() in scales.values()
    names = [node.op_type for node in model.graph]
    assert names.count("QuantizeLinear") >= 2
