r"""Trains the decoder of models/decoder.py on text and writes its weights in half precision.

    python scripts/make_novels.py janeaustenr -o novels
    python scripts/train_decoder.py novels/{emma,mansfield_park,persuasion}.txt \
        novels/{pride_and_prejudice,sense_and_sensibility}.txt \
        --held-out models/northanger_abbey.txt -o models/decoder.safetensors --minutes 50

These made the file in models/: 2.046 bits per byte held out, after 1,335 steps of 4,096 bytes on a
busy core; one that is free makes three times as many.

AdamW with a warm-up and a cosine by the clock, under autocast to bfloat16, compiled: one core with
AMX sees 10,000 bytes a second. The file is written every few minutes and at the end.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from models.decoder import Decoder, decoder

BATCH = 8
PEAK_LR = 2e-3
LAST_LR = 0.02  # of the peak
WARM_UP = 0.03  # share of the time
MAX_NORM = 1.0
EVERY_S = 240  # between two files
LN_2 = math.log(2)


def read_bytes(paths: list[Path]) -> torch.Tensor:
    """Bytes of the files, one after another, int64."""
    text = b"".join(path.read_bytes() for path in paths)
    return torch.from_numpy(np.frombuffer(text, np.uint8).astype(np.int64))


def factor(share: float) -> float:
    """Learning rate over its peak when a share of the time is gone."""
    if share < WARM_UP:
        return share / WARM_UP
    fallen = min((share - WARM_UP) / (1 - WARM_UP), 1.0)
    return LAST_LR + (1 - LAST_LR) * 0.5 * (1 + math.cos(math.pi * fallen))


def bits(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Mean bits per byte of logits (N, tokens, 256) for the bytes that came (N, tokens)."""
    return cross_entropy(logits.float().flatten(0, 1), wanted.flatten()) / LN_2


def tested(model: Decoder, text: torch.Tensor) -> float:
    """Mean bits per byte of a text in windows of the context, each from nothing, in float32."""
    windows = text[: (len(text) - 1) // model.sizes.context * model.sizes.context + 1]
    given = windows[:-1].reshape(-1, model.sizes.context)
    wanted = windows[1:].reshape(given.shape)
    with torch.inference_mode():
        parts = [
            bits(model(x), y).item() * len(x)
            for x, y in zip(torch.split(given, BATCH), torch.split(wanted, BATCH), strict=True)
        ]
    return sum(parts) / len(given)


def write(model: Decoder, path: Path, steps: int, found: float) -> None:
    """The weights in float16, and how they were come by."""
    state = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(state, path, metadata={"steps": str(steps), "bits_per_byte": f"{found:.3f}"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path)
    parser.add_argument("--held-out", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    text, held_out = read_bytes(args.text), read_bytes([args.held_out])
    model = decoder()
    compiled = torch.compile(model)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, PEAK_LR, betas=(0.9, 0.95), fused=True)
    span = torch.arange(model.sizes.context + 1)
    started = written = time.monotonic()
    step, recent = 0, 8.0
    while (share := (time.monotonic() - started) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * factor(share)
        chosen = text[torch.randint(len(text) - len(span), (BATCH, 1)) + span]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = compiled(chosen[:, :-1])
        loss = bits(logits, chosen[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's has no types
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        step, recent = step + 1, recent + 0.02 * (loss.item() - recent)
        if step % 100 == 0:
            print(f"step {step}: {recent:.3f} bits, {100 * share:.0f}% of the time", flush=True)
        if time.monotonic() - written > EVERY_S:
            written = time.monotonic()
            write(model, args.output, step, recent)
    found = tested(model, held_out)
    write(model, args.output, step, found)
    print(f"wrote {args.output}: {step} steps, {found:.3f} bits per byte held out")


if __name__ == "__main__":
    main()
