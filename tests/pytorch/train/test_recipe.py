"""One recipe for a CNN, a transformer and a text model, whose 4-bit weights lose much untrained."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, relu

from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.observers import NarrowRangeObserver
from onnxq.pytorch import FakeQuantize, LearnableFakeQuantize, convert, prepare_qat
from onnxq.pytorch.eager.best_start import best_start
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm
from onnxq.pytorch.train.recipe import (
    Recipe,
    distilling,
    finetune,
    mean_loss,
    parameter_groups,
)
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigMapping, get_default_qat_qconfig

if TYPE_CHECKING:
    from collections.abc import Callable

FOUR_BITS = QConfigMapping(
    QConfig(
        get_default_qat_qconfig().activation,
        FakeQuantSpec(NarrowRangeObserver.with_args(quant_max=7)),
    )
)
CLASSES = 5


class Cnn(nn.Module):
    """Two convolutions, batch norm, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.same, self.fc = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm(self.conv(x)))
        y = relu(y + self.same(y))
        return self.fc(y.mean((2, 3)))  # type: ignore[no-any-return]


class Attends(nn.Module):
    """One block of a transformer over vectors, pre-norm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.first, self.second, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        weights = self.query(y) @ self.key(y).transpose(1, 2) * self.width**-0.5
        x = x + self.out(torch.softmax(weights, -1) @ self.value(y))
        x = x + self.down(gelu(self.up(self.second(x))))
        return self.head(self.last(x).mean(1))  # type: ignore[no-any-return]


class Text(nn.Module):
    """Tokens, their places, a block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.block = nn.Embedding(50, 16), Attends()
        self.place = nn.Parameter(0.02 * torch.randn(8, 16))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.block(self.tokens(tokens) + self.place)  # type: ignore[no-any-return]


def images() -> Tensor:
    return torch.randn(32, 3, 6, 6)


def vectors() -> Tensor:
    return torch.randn(32, 8, 16)


def tokens() -> Tensor:
    return torch.randint(50, (32, 8))


def trained(model: nn.Module, batches: list[Tensor]) -> nn.Module:
    """The model after steps in float that make its weights matter."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    labels = [torch.randint(CLASSES, (len(x),)) for x in batches]
    for _ in range(15):
        for x, wanted in zip(batches, labels, strict=True):
            optimizer.zero_grad()
            cross_entropy(model(x), wanted).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("net", "draw"), [(Cnn, images), (Attends, vectors), (Text, tokens)], ids=["CNN", "ViT", "text"]
)
def test_the_recipe_brings_each_kind_of_model_back_to_its_float_self(
    net: Callable[[], nn.Module], draw: Callable[[], Tensor]
) -> None:
    torch.manual_seed(0)
    batches = [draw() for _ in range(4)]
    model = trained(net(), batches)
    distance = distilling(model)
    prepared = prepare_qat(copy.deepcopy(model), inputs=batches[0], qconfig=FOUR_BITS)
    for x in batches:
        prepared(x)
    untrained: Any = convert(copy.deepcopy(prepared).eval())
    finetune(prepared, batches, distance, Recipe(steps=120, learning_rate=1e-3))
    deployed: Any = convert(prepared)
    with torch.no_grad():
        before, after = (sum(distance(m, x) for x in batches) for m in (untrained, deployed))
    assert after < 0.7 * before  # 0.42 and 0.21 for CNN and text


def test_phases_begin_one_after_the_other() -> None:
    model = prepare_qat(Cnn(), inputs=images())
    recipe = Recipe(steps=8, freeze_activations=0.25, freeze=0.5)
    fakes = [part for part in model.modules() if isinstance(part, FakeQuantize)]
    norm = next(part for part in model.modules() if isinstance(part, WithBatchNorm))
    found = []
    for step in range(5):
        recipe.enter(model, step)
        on = {fake.is_replicated for fake in fakes if fake.observer_enabled}
        found.append((sorted(on), norm.freeze_bn))
    both, weights = ([False, True], False), ([True], False)
    assert found == [both, both, weights, weights, ([], True)]


def test_training_that_ruins_a_model_hands_its_start_back() -> None:
    torch.manual_seed(0)
    model, apart = Cnn().eval(), images()
    prepared: Any = prepare_qat(model, inputs=images(), qconfig=FOUR_BITS)
    loss = distilling(model)
    start, before = mean_loss(prepared, loss, [apart]), copy.deepcopy(prepared.state_dict())
    with pytest.warns(UserWarning, match="no step was better .* the post-training result"):
        finetune(prepared, [images()], loss, Recipe(steps=10, learning_rate=10.0), [apart])
    assert mean_loss(prepared, loss, [apart]) == start
    after = prepared.state_dict()
    changed = [name for name, x in before.items() if not torch.equal(x, after[name])]
    assert all(name.endswith("observer_enabled") for name in changed)


def test_training_ends_in_the_best_state_on_batches_held_apart() -> None:
    torch.manual_seed(0)
    batches = [images() for _ in range(3)]
    model = trained(Cnn(), batches)
    loss, apart = distilling(model), [images()]
    starts = [
        prepare_qat(model, inputs=batches[0], qconfig=FOUR_BITS.set_improve(names))
        for names in ((), ("bias", "round"))
    ]
    before = [mean_loss(one, loss, apart) for one in starts]
    prepared = best_start(model, batches[0], apart, FOUR_BITS)
    start = mean_loss(prepared, loss, apart)
    assert start <= min(before)
    watching = [f.observer_enabled for f in prepared.modules() if isinstance(f, FakeQuantize)]
    assert any(watching)  # which mean_loss has put back
    finetune(prepared, batches, loss, Recipe(30, 1e-3, freeze_activations=0, freeze=0), apart)
    assert mean_loss(prepared, loss, apart) < start
    with pytest.raises(CalibrationError, match="hold some rows back"):
        best_start(model, batches[0], [], FOUR_BITS)


def test_the_start_comes_back_where_what_is_deployed_of_training_is_worse() -> None:
    torch.manual_seed(0)
    batches = [images() for _ in range(2)]
    prepared = prepare_qat(Cnn(), inputs=batches[0], qconfig=FOUR_BITS)
    before = {name: x.clone() for name, x in prepared.state_dict().items()}

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        rounds = any(isinstance(part, FakeQuantize) for part in model.modules())
        found: Tensor = model(batch).square().mean() * (1 if rounds else -1)  # less is worse there
        return found

    recipe = Recipe(4, 1e-3, freeze_activations=0, freeze=0)
    with pytest.warns(UserWarning, match="no step was better than the start"):
        finetune(prepared, batches, loss, recipe, [batches[1]])
    after = prepared.state_dict()
    assert all(torch.equal(x, after[n]) for n, x in before.items() if n.endswith("weight"))


def test_the_rate_rises_and_falls_to_nothing() -> None:
    rates = [Recipe(steps=100, learning_rate=1.0).rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] > 0.97
    assert rates[-1] < 0.001


def test_logits_of_transformers_and_inputs_by_keyword_are_taken() -> None:
    class Named(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return type("Output", (), {"logits": x})()

    x = torch.randn(3, 2, 4)
    loss = distilling(Named(), temperature=2.0)
    assert loss(nn.Identity(), x).item() == pytest.approx(0, abs=1e-6)
    assert loss(Named(), {"x": x}).item() == pytest.approx(0, abs=1e-6)
    assert loss(nn.ReLU(), (x,)).item() > 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0},
        {"learning_rate": 0.0},
        {"freeze_activations": 0.6},
        {"freeze": 1.1},
        {"freeze_activations": -0.1},
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(QConfigError, match="wanted"):
        Recipe(**arguments)


class InADict(nn.Module):
    """A layer whose result is in a dict, by one of two names."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.fc, self.name = nn.Linear(4, 3), name

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """(N, 3)."""
        return {self.name: self.fc(x)}


def test_logits_may_be_in_a_dict() -> None:
    x = torch.randn(5, 4)
    teacher = InADict("logits")
    assert distilling(teacher)(teacher, x).item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(ModelError, match=r"returns a dict.*wanted a tensor, or a result with"):
        distilling(InADict("scores"))(teacher, x)


def test_what_cannot_be_trained_is_refused() -> None:
    loss = distilling(Cnn())
    with pytest.raises(ModelError, match="nothing in the model rounds"):
        finetune(Cnn(), [images()], loss)
    with pytest.raises(CalibrationError, match="there are no batches"):
        finetune(prepare_qat(Cnn(), inputs=images()), [], loss)
    with pytest.raises(CalibrationError, match="held_apart has no batches"):
        finetune(prepare_qat(Cnn(), inputs=images()), [images()], loss, held_apart=[])


def test_a_loss_that_is_not_a_number_before_the_first_step_is_refused() -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        found: Tensor = model(batch).mean() * math.nan
        return found

    with pytest.raises(CalibrationError, match="not finite before the first step"):
        finetune(prepare_qat(Cnn(), inputs=images()), [images()], loss, held_apart=[images()])
    with pytest.raises(QConfigError, match="temperature"):
        distilling(Cnn(), 0)


def test_learned_scales_have_rates_in_proportion_to_themselves() -> None:
    """Adam's steps are as long as the rate: 1e-3 would take a scale of 1e-3 to nothing."""
    fake, layer = LearnableFakeQuantize(), nn.Linear(2, 2)
    fake(torch.tensor([0.0, 0.01]))
    before = fake.scale.item()
    model = nn.Sequential(fake, layer)
    groups = parameter_groups(model, 1e-3)
    assert [one for group in groups for one in group["params"]] == [*layer.parameters(), fake.scale]
    optimizer = torch.optim.Adam(groups)
    model(torch.tensor([[0.004, 0.02]])).sum().backward()
    optimizer.step()
    assert abs(fake.scale.item() / before - 1) == pytest.approx(0.01, rel=1e-3)
