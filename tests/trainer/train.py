"""Program of the trainer's environment: trains a prepared model in one way, and prints findings.

    python tests/trainer/train.py WAY FOLDER

The last line that it prints is JSON: what the test of that way looks at.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accelerate
import peft
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy

import onnxq
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.nn.quantized.dynamic.linear import GroupwiseLinear
from onnxq.qconfig import QConfigMapping, groupwise_4bit_qat_qconfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    Made = tuple[nn.Module, dict[str, Tensor]]

WORDS, TOKENS, SIDE, CLASSES = 100, 9, 32, 3
ROWS, BATCH, STEPS, SAVED = 16, 4, 6, 3
RATE = 1e-2
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": CLASSES,
}
LORA = peft.LoraConfig(r=2, target_modules=["query", "value"])


def bert() -> Made:
    """Texts with classes; dropout is live."""
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=WORDS, **SIZES)
    ids = torch.randint(3, WORDS, (ROWS, TOKENS))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return transformers.BertForSequenceClassification(config), inputs


def vit() -> Made:
    """Images with classes."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=SIDE, patch_size=8, **SIZES)
    pixels = torch.randn(ROWS, 3, SIDE, SIDE)
    return transformers.ViTForImageClassification(config), {"pixel_values": pixels}


MODELS = {"bert": bert, "vit": vit}


def first(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rows of one batch."""
    return {name: x[:BATCH] for name, x in inputs.items()}


def labels() -> Tensor:
    """A class for each row."""
    return torch.arange(ROWS) % CLASSES


def prepared(made: Made) -> nn.Module:
    """The model as it is trained; labels stay out of it, and hence out of the file."""
    model, inputs = made
    return prepare_qat(model, inputs=first(inputs))


def deployed(model: nn.Module, inputs: dict[str, Tensor], **more: object) -> dict[str, object]:
    """Findings on a trained model: its conversion, and its file beside the reference."""
    model.apply(disable_observer).eval()
    batch = first(inputs)
    quantized = convert(model)
    with torch.no_grad():
        same = torch.equal(model(**batch)["logits"], quantized(**batch)["logits"])
    return {"converted": same, **checked(quantized, inputs), **more}


def checked(quantized: nn.Module, inputs: dict[str, Tensor]) -> dict[str, object]:
    """Findings on a converted model's file."""
    batch = first(inputs)
    file = export(quantized, batch)
    feeds = {name: x.numpy() for name, x in batch.items()}
    found = onnxq.cross_check(file, onnxq.Samples([feeds], batch_size=BATCH))
    return {
        "inputs": [value.name for value in file.graph.inputs],
        "integer_nodes": len(found.nodes),
        "differing": found.differing,
        "exact": found.exact,
    }


# --- ways


def trainer(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Trainer to the end, and from its checkpoint to the same end."""
    inputs = made()[1]
    rows = [{name: x[i] for name, x in inputs.items()} for i in range(ROWS)]
    data: Any = [{**row, "labels": label} for row, label in zip(rows, labels(), strict=True)]

    def loss(results: Any, wanted: Tensor, num_items_in_batch: object = None) -> Tensor:
        del num_items_in_batch
        return cross_entropy(results["logits"], wanted)

    def trained(name: str, checkpoint: str | None) -> nn.Module:
        model = prepared(made())
        arguments = transformers.TrainingArguments(
            str(folder / name),
            max_steps=STEPS,
            save_steps=SAVED,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            use_cpu=True,
            report_to="none",
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        run = transformers.Trainer(model, arguments, train_dataset=data, compute_loss_func=loss)
        run.train(resume_from_checkpoint=checkpoint)
        return model

    whole = trained("whole", None)
    checkpoint = folder / "whole" / f"checkpoint-{SAVED}"
    resumed = trained("resumed", str(checkpoint))
    pairs = [(x, resumed.state_dict()[name]) for name, x in whole.state_dict().items()]
    return deployed(
        whole,
        inputs,
        saved=sorted(path.name for path in checkpoint.glob("*.safetensors")),
        moved=differing(whole.state_dict(), prepared(made()).state_dict()),
        resumed_differing=sum(not torch.equal(one, other) for one, other in pairs),
    )


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> int:
    """Tensors that are not equal."""
    return sum(not torch.equal(x, other[name]) for name, x in one.items())


def loop(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """A loop of accelerate's, saved halfway and gone on with from there."""
    inputs = made()[1]

    def trained(begin: int, end: int) -> nn.Module:
        accelerator = accelerate.Accelerator(cpu=True)
        model = prepared(made())
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        model, optimizer = accelerator.prepare(model, optimizer)
        if begin:
            accelerator.load_state(str(folder / "state"))
        for step in range(begin, end):
            rows = slice(step % 4 * BATCH, step % 4 * BATCH + BATCH)
            results = model(**{name: x[rows] for name, x in inputs.items()})
            accelerator.backward(cross_entropy(results["logits"], labels()[rows]))
            optimizer.step()
            optimizer.zero_grad()
            if step + 1 == SAVED and not begin:
                accelerator.save_state(str(folder / "state"))
        unwrapped: nn.Module = accelerator.unwrap_model(model)
        return unwrapped

    whole, resumed = trained(0, STEPS), trained(SAVED, STEPS)
    return deployed(
        whole,
        inputs,
        saved=sorted(path.name for path in (folder / "state").glob("*.safetensors")),
        moved=differing(whole.state_dict(), prepared(made()).state_dict()),
        resumed_differing=differing(whole.state_dict(), resumed.state_dict()),
    )


def fit(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, object]:
    """Trains what may be trained for some steps; which parameters moved, by adapter or not."""
    before = {name: x.detach().clone() for name, x in model.named_parameters()}
    optimizer = torch.optim.Adam((x for x in model.parameters() if x.requires_grad), lr=RATE)
    for step in range(STEPS):
        rows = slice(step % 4 * BATCH, step % 4 * BATCH + BATCH)
        results = model(**{name: x[rows] for name, x in inputs.items()})
        loss = cross_entropy(results["logits"], labels()[rows])
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    moved = [name for name, x in model.named_parameters() if not torch.equal(x, before[name])]
    return {
        "adapters": sum("lora_" in name for name in before),
        "moved_adapters": sum("lora_" in name for name in moved),
        "moved_others": [name for name in moved if "lora_" not in name],
    }


def lora_before(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Adapters around the float model, then prepare_qat."""
    del folder
    model, inputs = made()
    adapted = prepare_qat(peft.get_peft_model(model, LORA), inputs=first(inputs))
    found = fit(adapted, inputs)
    return deployed(adapted, inputs, **found)


def lora_after(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Adapters around the prepared model's layers, merged into them before conversion."""
    del folder
    inputs = made()[1]
    adapted = peft.get_peft_model(prepared(made()), LORA)
    found = fit(adapted, inputs)
    return deployed(adapted.merge_and_unload(), inputs, **found)


def lora_merged(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Adapters trained in float and merged, then prepare_qat."""
    del folder
    model, inputs = made()
    adapted = peft.get_peft_model(model, LORA)
    found = fit(adapted, inputs)
    merged = adapted.merge_and_unload()
    merged.requires_grad_(True)
    model = prepare_qat(merged, inputs=first(inputs))
    fit(model, inputs)
    return deployed(model, inputs, **found)


def lora_converted(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Adapters over a converted model's integers of 4 bits, a layer that peft is told of."""
    del folder
    model, inputs = made()
    mapping = QConfigMapping(groupwise_4bit_qat_qconfig)
    base = convert(prepare_qat(model, inputs=first(inputs), qconfig=mapping).eval())
    layers = sum(isinstance(part, GroupwiseLinear) for part in base.modules())
    integers = [x.clone() for x in base.buffers()]
    config = peft.LoraConfig(r=2, target_modules=["query", "value"])
    config._register_custom_module({GroupwiseLinear: peft.tuners.lora.Linear})
    adapted = peft.get_peft_model(base, config)
    found = fit(adapted, inputs)
    kept = all(map(torch.equal, base.buffers(), integers))
    file = export(adapted.eval(), first(inputs))
    matmuls = sum(node.op_type == "MatMulNBits" for node in file.graph)
    return {"kept": kept, "layers": layers, "matmuls_of_integers": matmuls, **found}


def lora_refused(made: Callable[[], Made], folder: Path) -> dict[str, object]:
    """Adapters over integers that compute in integers: what peft says."""
    del folder
    base = convert(prepared(made()).eval())
    try:
        peft.get_peft_model(base, LORA)
    except Exception as error:  # the test looks at it
        return {"type": type(error).__name__, "words": str(error)}
    return {"type": "", "words": ""}


WAYS = {
    way.__name__: way
    for way in (trainer, loop, lora_before, lora_after, lora_merged, lora_converted, lora_refused)
}


def main() -> None:
    """Runs one way on one model."""
    way, model, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(WAYS[way](MODELS[model], Path(folder))) + "\n")


if __name__ == "__main__":
    main()
