"""Trains the vision transformer with a convolutional stem that benchmarks/defaults.py measures.

    python scripts/train_vit_stem.py --data cifar10_jpeg.npz -o vit_stem.safetensors

The data are those of scripts/train.py, the recipe is that of the transformer there. Eight epochs
take some 12 CPU minutes of one core. The weights are not kept here:
`ONNXQ_VIT_STEM=vit_stem.safetensors python -m benchmarks defaults vit_stem` reads them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._defaults.vit_stem import vit_stem
from scripts.train import ATTENTIVE, load_images, train


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="npz of JPEG files")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = vit_stem()
    top1 = train(model, ATTENTIVE, load_images(args.data), args.epochs, args.seed, bfloat16=True)
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(state, args.output, metadata={"top1": f"{100 * top1:.2f}"})
    print(f"wrote {args.output}: top-1 {100 * top1:.2f}%")


if __name__ == "__main__":
    main()
