"""Recurrent classifiers of scikit-learn's digits: 8x8 images, each row a step of 8 numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    import numpy.typing as npt

PIXELS = 8  # per row, and rows per image
CLASSES = 10
TRAINING = 1197  # images, the first ones; the last 600 are the test
BRIGHTEST = 16


def load_digits(split: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images (N, 8, 8) in [-1, 1] and their labels (N,), in scikit-learn's order.

    Args:
        split: "train", the first 1,197, or "test", the last 600.
    Raises:
        ValueError: another split.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; wanted 'train' or 'test'")
    part = slice(None, TRAINING) if split == "train" else slice(TRAINING, None)
    with np.load(Path(__file__).parent / "digits.npz") as stored:
        images, labels = stored["images"][part], stored["labels"][part]
    return (images / (BRIGHTEST / 2) - 1).astype(np.float32), labels.astype(np.int64)


class DigitsLSTM(nn.Module):
    """A bidirectional LSTM; the mean of its outputs over the rows is classified."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.rnn = nn.LSTM(PIXELS, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) of images (N, 8, 8)."""
        logits: torch.Tensor = self.head(self.rnn(rows)[0].mean(1))
        return logits


class DigitsGRU(nn.Module):
    """Two layers of GRU; the output after the last row is classified."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.rnn = nn.GRU(PIXELS, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) of images (N, 8, 8)."""
        logits: torch.Tensor = self.head(self.rnn(rows)[0][:, -1])
        return logits


def digits_lstm() -> DigitsLSTM:
    """An untrained DigitsLSTM; its weights are in digits_lstm.safetensors."""
    return DigitsLSTM()


def digits_gru() -> DigitsGRU:
    """An untrained DigitsGRU; its weights are in digits_gru.safetensors."""
    return DigitsGRU()


def example_inputs() -> dict[str, torch.Tensor]:
    """Inputs that `onnxq export` traces these models with and checks them on: four images."""
    return {"rows": torch.from_numpy(load_digits("train")[0][:4])}
