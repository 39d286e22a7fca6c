"""Recommendation, generation, comparison, several inputs, a branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import Feeds, Made, Size, conv_bn, images, normal
from scripts._architectures.classification import GroupedBlock


class Dlrm(nn.Module):
    """An MLP for numbers, bags of embeddings, products of all pairs, an MLP on top."""

    flat: Tensor

    def __init__(self, numbers: int, width: int, tables: int, rows: int, top: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(
            nn.Linear(numbers, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU()
        )
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)]
        )
        features = tables + 1
        i, j = torch.tril_indices(features, features, -1)
        self.register_buffer("flat", i * features + j)
        self.top = nn.Sequential(
            nn.Linear(width + len(i), top), nn.ReLU(), nn.Linear(top, 1), nn.Sigmoid()
        )

    def forward(self, dense: Tensor, cats: Tensor) -> Tensor:
        """Shares (N, 1) of numbers (N, numbers) and rows (N, tables, 3)."""
        x = self.bottom(dense)
        bags = [table(cats[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([x, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        y: Tensor = self.top(torch.cat([x, products[:, self.flat]], 1))
        return y


def dlrm(size: Size) -> Made:
    """DLRM (Naumov et al. 2019): EmbeddingBag, products of pairs."""
    numbers, width, tables, rows, top = (
        (13, 64, 8, 2000, 512) if size is Size.REAL else (6, 8, 3, 50, 32)
    )

    def feeds(n: int, seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        return {
            "dense": torch.randn(n, numbers, generator=random).abs().log1p(),
            "cats": torch.randint(rows, (n, tables, 3), generator=random),
        }

    return Dlrm(numbers, width, tables, rows, top), feeds


class Autoencoder(nn.Module):
    """Strided convolutions with ELU to 16 numbers, and transposed ones back."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, c, 3, 2, 1),
            nn.ELU(),
            nn.Conv2d(c, 2 * c, 3, 2, 1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(2 * c * 64, 16),
        )
        self.decode = nn.Sequential(
            nn.Linear(16, 2 * c * 64),
            nn.Unflatten(1, (2 * c, 8, 8)),
            nn.ELU(),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
            nn.BatchNorm2d(c),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(c, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, 32, 32) -> the same shape."""
        y: Tensor = self.decode(self.encode(image))
        return y


def autoencoder(size: Size) -> Made:
    """A convolutional autoencoder (Masci et al. 2011) with DCGAN's decoder."""
    module = Autoencoder(32 if size is Size.REAL else 4)
    return module, lambda n, seed: {"image": images(n, 3, 32, seed)}


class Siamese(nn.Module):
    """One network for both images; a share from |a - b|, and the cosine of a and b."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            conv_bn((3, c), 3, 2),
            conv_bn((c, 2 * c), 3, 2),
            conv_bn((2 * c, 2 * c)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * c, c),
        )
        self.head = nn.Linear(c, 1)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Shares (N, 1) and cosines (N,) of two images (N, 3, H, W)."""
        a, b = self.net(left), self.net(right)
        return torch.sigmoid(self.head((a - b).abs())), F.cosine_similarity(a, b)


def siamese(size: Size) -> Made:
    """A siamese network (Koch et al. 2015): every weight is read twice."""
    c, side = (64, 64) if size is Size.REAL else (8, 24)
    return Siamese(c), lambda n, seed: {
        "left": images(n, 3, side, seed),
        "right": images(n, 3, side, seed + 100),
    }


class ManyInputs(nn.Module):
    """Features of an image times features of six numbers; three outputs."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.layers = conv_bn((3, c), 3, 2)
        # not called `meta`: torch's exporter fails on a module of the name of an input
        self.factors = nn.Sequential(nn.Linear(6, c), nn.ReLU())
        self.body = GroupedBlock(c, 2 * c, c, 2)
        self.classify, self.segment = nn.Linear(2 * c, 4), nn.Conv2d(2 * c, 2, 1)

    def forward(self, image: Tensor, meta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (N, 4), logits (N, 2, H/4, W/4), features (N, 2c)."""
        x = self.body(self.layers(image) * self.factors(meta)[:, :, None, None])
        mean = x.mean((2, 3))
        return self.classify(mean), self.segment(x), mean


def multi_io(size: Size) -> Made:
    """Image and metadata (as in FiLM, Perez et al. 2017), three outputs."""
    c, side = (64, 64) if size is Size.REAL else (8, 24)
    return ManyInputs(c), lambda n, seed: {
        "image": images(n, 3, side, seed),
        "meta": normal(seed, n, 6),
    }


class Branching(nn.Module):
    """One of two convolutions, by the mean of the features."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.stem = conv_bn((3, c), 3, 2)
        self.left, self.right = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 1)
        self.head = nn.Linear(c, 4)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 4)."""
        x = self.stem(image)
        y = torch.cond(
            x.mean() > 0.5,
            lambda v: F.relu(self.left(v)),
            lambda v: F.relu(self.right(v)),
            (x,),
        )
        logits: Tensor = self.head(y.mean((2, 3)))
        return logits


def cond_if(size: Size) -> Made:
    """torch.cond, which ONNX has as If; one sample at a time, since the condition is its mean."""
    c, side = (64, 64) if size is Size.REAL else (8, 24)
    return Branching(c), lambda n, seed: {"image": images(n, 3, side, seed)}


class DiffusionBlock(nn.Module):
    """Group norm and SiLU in front of convolutions, the time added, attention over pixels."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, c, 3, padding=1), nn.GroupNorm(4, c)
        self.conv1, self.time = nn.Conv2d(c, c, 3, padding=1), nn.Linear(16, c)
        self.norm2, self.conv2 = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.norm3, self.qkv = nn.GroupNorm(4, c), nn.Conv2d(c, 3 * c, 1)
        self.project, self.out = nn.Conv2d(c, c, 1), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, image: Tensor, temb: Tensor) -> Tensor:
        """Noise (N, 3, H, W) of images of that shape and times (N, 16)."""
        x = self.first(image)
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(temb))[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(y)))
        n, c, height, width = x.shape
        q, k, v = self.qkv(self.norm3(x)).reshape(n, 3, c, height * width).unbind(1)
        shares = (q.transpose(1, 2) @ k * c**-0.5).softmax(-1)
        mixed = (v @ shares.transpose(1, 2)).reshape(n, c, height, width)
        noise: Tensor = self.out(x + self.project(mixed))
        return noise


def diffusion(size: Size) -> Made:
    """A block of DDPM's U-Net (Ho et al. 2020)."""
    c, side = (64, 24) if size is Size.REAL else (8, 8)
    return DiffusionBlock(c), lambda n, seed: {
        "image": images(n, 3, side, seed),
        "temb": normal(seed, n, 16),
    }
