"""Tensors with one scale between them: the inputs of a concatenation, a tensor and its views."""

import torch
from torch import Tensor, nn

from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.numerics.min_max import min_max_of


class WholeBatch:
    """Shows an observer what several tensors of one batch hold together, once per batch.

    A moving average of the batches' ranges would else become one of the tensors' ranges, which
    cuts off the widest tensor.
    """

    def __init__(self, fake: FakeQuantize, sources: int) -> None:
        self.fake = fake
        self.sources = sources
        self._seen: dict[int, Tensor] = {}

    def watch(self, x: Tensor, slot: int) -> None:
        """Takes the tensor number `slot` of a batch."""
        fake = self.fake
        if not fake.observer_enabled or torch.compiler.is_exporting() or x.numel() == 0:
            return
        if not fake.needs_range_alone:
            fake.watch(x)  # nothing but the data themselves counts
            return
        self._seen[slot] = min_max_of(x.detach(), None)
        if len(self._seen) == self.sources:
            low, high = torch.stack([*self._seen.values()]).amax(0).unbind()
            self._seen.clear()
            fake.watch(torch.stack([low.neg(), high]))


class GroupMember(nn.Module):
    """One of several places where the same FakeQuantize rounds."""

    def __init__(
        self, fake_quant: nn.Module, batch: WholeBatch | None = None, slot: int | None = None
    ) -> None:
        super().__init__()
        self.fake_quant = fake_quant
        self.batch = batch
        self.slot = slot

    def forward(self, x: Tensor) -> Tensor:
        """x, rounded; as it is until every place has seen a batch."""
        fake = self.fake_quant
        if not isinstance(fake, FakeQuantize) or fake.has_own_forward:  # converted, or a user's
            made: Tensor = fake(x)
            return made
        if self.batch is not None and self.slot is not None:
            self.batch.watch(x, self.slot)
        if not fake.fake_quant_enabled or not fake.has_observed:
            return x
        return fake.rounded(x)


class QParamsCopy(GroupMember):
    """A place whose values were rounded by the FakeQuantize before, and only moved since.

    Rounding them again would change neither a value nor a gradient. What convert makes of it
    rounds: the exported model has a QuantizeLinear here.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x; rounded once converted."""
        return x if isinstance(self.fake_quant, FakeQuantize) else super().forward(x)
