"""A folder that onnxruntime-genai loads: the model, genai_config.json and the tokenizer's files."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import onnx
import onnx_ir as ir

from onnxq.core.atomic import as_output_error, check_writable, put, temporary
from onnxq.core.regular import why_no_file
from onnxq.core.saved import UNREADABLE
from onnxq.errors import ModelError, OutputError, QConfigError, listed
from onnxq.graph import io
from onnxq.graph.saving import save
from onnxq.graph.untrusted.external_data import leaves_folder
from onnxq.graph.untrusted.scopes import all_tensors
from onnxq.language.decoder import IDS, LOGITS, MASK, POSITIONS, Decoder

MODEL = "model.onnx"
CONFIG = "genai_config.json"
TOKENIZER = "tokenizer.json"
_TOKENIZER_FILES = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
"""Files of a tokenizer that onnxruntime-genai reads where they are there."""
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
FAMILY = "llama"
"""Name under which onnxruntime-genai runs decoders of these inputs and outputs, of any family."""


OWN_CONFIGS = ("generation_config.json", "config.json")
"""Files in which transformers says a model's special tokens; the first that names one counts."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of the special tokens; None: the model's own.

    Those stand in genai_config.json beside the model, or in generation_config.json and config.json
    beside it or beside the tokenizer.

    Attributes:
        end: the token that ends a text, or several; where nothing names one: 0.
        pad: fills rows that are shorter; where nothing names one: the first of `end`.
        begin: is set before a text by tokenizers that do so; likewise.
    """

    end: int | tuple[int, ...] | None = None
    pad: int | None = None
    begin: int | None = None


def genai_folder(
    model: str | Path | onnx.ModelProto | ir.Model,
    folder: str | Path,
    *,
    tokenizer: str | Path | None = None,
    context: int | None = None,
    tokens: Tokens = Tokens(),  # frozen
    like: str | Path | None = None,
) -> Path:
    """Makes a folder that onnxruntime-genai loads: og.Model(folder).

    Files of that folder with these names are replaced; the configuration last, and none where the
    disk fills.

    Args:
        model: a decoder with its cache, float or quantized (see onnxq.language.decoder).
        folder: where to write; it is made where it is missing.
        tokenizer: folder with tokenizer.json, as save_pretrained writes it; None: tokens are bytes.
        context: most tokens of prompt and text together; None: as many as the model knows.
        tokens: the special ones.
        like: folder that onnxruntime-genai loads, as its builder writes it, in which the model
            takes the place of the part that has the same inputs and outputs: the decoder, the
            encoder, or a part for images or sound. Its other files are taken as they are, so that
            part after part can be put in place. None: the configuration of a plain decoder.
    Returns:
        The folder.
    Raises:
        ModelError: it is no decoder with a cache, or one that needs `like`; it does not say its
            vocabulary, and has not 256; no part of `like` has its inputs and outputs.
        QConfigError: a longer context than the model knows, none at all, a token that the
            vocabulary lacks, a folder without a tokenizer; `like` with another option.
        OutputError: the folder cannot be written.
    """
    source = io.load(model)
    if like is not None:
        if tokenizer is not None or context is not None or tokens != Tokens():
            raise QConfigError("like: its configuration and tokenizer are taken; name no others.")
        return _with_part(source, Path(like), Path(folder).absolute())
    decoder = Decoder.of(source)
    _check_plain(decoder)
    beside = [Path(model).absolute().parent] if isinstance(model, str | Path) else []
    own = _with_own(tokens, [*([] if tokenizer is None else [Path(tokenizer)]), *beside])
    config = _config(decoder, _context(decoder, context), own)
    files = _tokenizer(decoder, tokenizer)
    target = Path(folder).absolute()
    with _made(target), contextlib.ExitStack() as stack:
        for name in (MODEL, CONFIG, *files):
            check_writable(target / name)
        texts = {**files, CONFIG: _json(config)}
        # on the disk ahead of the model, and named behind it: a disk that fills changes no file
        parts = {name: stack.enter_context(temporary(target / name)) for name in texts}
        for name, part in parts.items():
            _write(part, texts[name])
        save(source, target / MODEL)
        for name, part in parts.items():
            with as_output_error(part):
                put(part, target / name)
    return target


def _check_plain(decoder: Decoder) -> None:
    """Refuses decoders of which the configuration of a plain one does not tell enough."""
    others = [*(name for name in decoder.past if name not in decoder.keys), *decoder.encoded]
    unnumbered = [name for name in decoder.keys if not name.startswith("past_key_values.")]
    if special := [*others, *unnumbered]:
        raise ModelError(
            f"the decoder takes {listed(special)}, which onnxruntime-genai knows of families of "
            "their own alone. Give the folder that its builder wrote, for its configuration "
            "(--like)."
        )


def _with_part(source: ir.Model, like: Path, target: Path) -> Path:
    """The folder, its part of the model's inputs and outputs replaced."""
    if target.resolve() == like.resolve():
        raise QConfigError("like: it stays as it is; write to another folder.")
    parts = {kind: (name, io.load(like / name)) for kind, name in _parts(like).items()}
    own = _io_names(source)
    same = {name: old for name, old in parts.values() if _io_names(old) == own}
    if len(same) != 1:
        named = ", ".join(f"{kind} ({name})" for kind, (name, _) in parts.items())
        raise ModelError(
            f"the model takes {', '.join(sorted(own[0]))}; {len(same)} parts of '{like}' take and "
            f"give the same, of {named}. Give the folder of the float model's builder."
        )
    ((name, old),) = same.items()
    tensors = (tensor for _, tensor in all_tensors(old))
    data = {Path(t.path).resolve() for t in tensors if isinstance(t, ir.ExternalTensor)}
    left = data | {(like / name).resolve()}
    others = [path for path in like.iterdir() if path.is_file() and path.resolve() not in left]
    with _made(target):
        for path in others:
            check_writable(target / path.name)
        save(source, target / name)
        for path in others:
            with as_output_error(target / path.name), temporary(target / path.name) as part:
                shutil.copyfile(path, part)
                put(part, target / path.name)
    return target


def _io_names(model: ir.Model) -> tuple[set[str], set[str]]:
    """Names of the inputs, and of the outputs."""
    graph = model.graph
    return {str(v.name) for v in graph.inputs}, {str(v.name) for v in graph.outputs}


def _parts(folder: Path) -> dict[str, str]:
    """Part of the model -> its file, as the configuration of a folder names them."""
    try:
        parts = json.loads((folder / CONFIG).read_text("utf-8"))["model"].items()
        named = {k: str(v["filename"]) for k, v in parts if isinstance(v, dict) and "filename" in v}
    except (*UNREADABLE, OSError, AttributeError) as error:
        raise ModelError(
            f"'{folder}' is no folder of onnxruntime-genai: {CONFIG}: {error!r:.100}."
        ) from error
    bad = [n for n in named.values() if Path(n).name != n or why_no_file(folder / n)]
    if bad or not named:
        raise ModelError(
            f"'{folder}': {CONFIG} names {', '.join(bad) or 'no file'}; wanted files beside it."
        )
    return named


def model_in(path: Path) -> Path:
    """The decoder's file in a folder of onnxruntime-genai; of another path, the path."""
    config = path / CONFIG
    if not path.is_dir() or not config.is_file():
        return path
    try:
        name: str = json.loads(config.read_text("utf-8"))["model"]["decoder"]["filename"]
        found = path / name
        is_inside = found.resolve().is_relative_to(path.resolve()) and not leaves_folder(name)
        why = why_no_file(found) if is_inside else "it lies outside of the folder"
    except (*UNREADABLE, OSError, RuntimeError) as error:
        raise ModelError(
            f"'{config}' does not name the decoder's file at model.decoder.filename: "
            f"{error!r:.100}. Give the .onnx file inside."
        ) from error
    if why:
        raise ModelError(f"'{config}' names the decoder {name!r:.100}: {why}. Give the .onnx file.")
    return found


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder that is there; one that was made is removed again on any error."""
    is_new = not folder.exists()
    if not is_new and not folder.is_dir():
        raise OutputError(f"'{folder}' is a file; wanted a folder. Choose another name.")
    with as_output_error(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _write(path: Path, text: bytes) -> None:
    with as_output_error(path, lambda: len(text)), path.open("xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _context(decoder: Decoder, asked: int | None) -> int:
    """Tokens of prompt and text together."""
    known = decoder.context
    if asked is None and known is None:
        raise QConfigError(
            "context: the model does not say how many positions it knows. Give the number that it "
            "was trained on (--context)."
        )
    wanted = known if asked is None else asked
    assert wanted is not None
    if wanted < 1 or (known is not None and wanted > known):
        raise QConfigError(
            f"context is {wanted}; wanted 1 to {known or 'the positions it was trained on'}: a "
            "longer text would leave the model's table of rotary angles."
        )
    return wanted


def _tokenizer(decoder: Decoder, folder: str | Path | None) -> dict[str, bytes]:
    """File name -> bytes of the tokenizer."""
    if folder is None:
        if decoder.vocabulary != BYTES:
            raise ModelError(
                f"the model's vocabulary has {decoder.vocabulary or 'a size that it does not say'}"
                f"{' tokens' if decoder.vocabulary else ''}; without a tokenizer tokens are the "
                f"{BYTES} bytes. Give the folder of the model's tokenizer (--tokenizer)."
            )
        return {name: _json(text) for name, text in tokenizer_files().items()}
    place = Path(folder)
    if why := why_no_file(place / TOKENIZER):
        raise QConfigError(
            f"tokenizer '{place}': {TOKENIZER}: {why}. Give the folder that the tokenizer's "
            "save_pretrained wrote."
        )
    found = {name: place / name for name in _TOKENIZER_FILES if (place / name).is_file()}
    return {name: path.read_bytes() for name, path in found.items()}


def _with_own(tokens: Tokens, folders: Sequence[Path]) -> Tokens:
    """The tokens, those that are not given as files of these folders name them."""
    named: dict[str, object] = {}
    for folder in folders:
        for name in (CONFIG, *OWN_CONFIGS):
            named = {**_named_tokens(folder / name), **named}
    end = tokens.end if tokens.end is not None else named.get("eos_token_id", 0)
    ends = tuple(end) if isinstance(end, list | tuple) else end
    pad = tokens.pad if tokens.pad is not None else named.get("pad_token_id")
    begin = tokens.begin if tokens.begin is not None else named.get("bos_token_id")
    try:
        return msgspec.convert({"end": ends, "pad": pad, "begin": begin}, Tokens)
    except msgspec.ValidationError as error:
        raise ModelError(
            f"the files beside the model or its tokenizer name special tokens that are none: "
            f"{error}. Name them (--end-token ...)."
        ) from error


def _named_tokens(path: Path) -> dict[str, object]:
    """The special tokens that a file of JSON names; none where it is no such file."""
    if why_no_file(path):
        return {}
    try:
        values = json.loads(path.read_text("utf-8"))
        found = values.get("model", values) if path.name == CONFIG else values
        return {n: found[n] for n in SPECIAL if found.get(n) is not None}
    except (*UNREADABLE, OSError, AttributeError) as error:
        raise ModelError(
            f"'{path}' does not say the special tokens: {error!r:.100}. Repair it, or take it away."
        ) from error


def _config(decoder: Decoder, context: int, tokens: Tokens) -> dict[str, object]:
    """genai_config.json of a decoder."""
    ends = tokens.end if isinstance(tokens.end, tuple) else (tokens.end or 0,)
    pad, begin = (ends[0] if t is None else t for t in (tokens.pad, tokens.begin))
    for name, token in (*(("end", end) for end in ends), ("pad", pad), ("begin", begin)):
        if token is not None and not 0 <= token < (decoder.vocabulary or token + 1):
            raise QConfigError(
                f"token {name} is {token}; the vocabulary has {decoder.vocabulary} tokens."
            )
    kv_heads, head = decoder.cache
    names = {spec.name for spec in decoder.inputs}
    inputs = {name: name for name in (IDS, MASK, POSITIONS) if name in names}
    cache = {
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
    present = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    heads = kv_heads if decoder.heads is None else decoder.heads
    return {
        "model": {
            "type": FAMILY,
            "context_length": context,
            "vocab_size": decoder.vocabulary,
            "bos_token_id": begin,
            "eos_token_id": list(ends) if len(ends) > 1 else ends[0],
            "pad_token_id": pad,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": MODEL,
                "head_size": head,
                "hidden_size": heads * head,
                "num_attention_heads": heads,
                "num_hidden_layers": decoder.layers,
                "num_key_value_heads": kv_heads,
                "inputs": inputs | cache,
                "outputs": {LOGITS: LOGITS} | present,
            },
        },
        "search": {
            "do_sample": False,
            "max_length": context,
            "past_present_share_buffer": decoder.shares,
        },
    }


# --- The tokenizer of a model whose tokens are bytes, in the files of Hugging Face's tokenizers
#
# Byte-level BPE without merges: each byte is written as one visible letter (GPT-2's table), and is
# the token of its own number.


BYTES = 256
_VISIBLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), BYTES))


def letters() -> dict[str, int]:
    """The letter that stands for each byte -> the byte, in the order of bytes."""
    hidden = [byte for byte in range(BYTES) if byte not in _VISIBLE]
    shown = {byte: chr(byte) for byte in _VISIBLE}
    shown |= {byte: chr(BYTES + place) for place, byte in enumerate(hidden)}
    return {shown[byte]: byte for byte in range(BYTES)}


def tokenizer_files() -> dict[str, dict[str, object]]:
    """File name -> its JSON: tokenizer.json and tokenizer_config.json."""
    plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    byte_level = {"type": "ByteLevel", **plain}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": letters(),
            "merges": [],
        },
    }
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_000_000,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
