"""Models of transformers, in small configurations with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    Made = tuple[nn.Module, dict[str, torch.Tensor]]

_WIDTH, _HEADS, _LAYERS = 32, 4, 2
_WORDS, _LENGTH, _ROWS = 100, 9, 4
_PIXELS, _PATCH = 32, 8
_SAMPLES = 1600  # of sound


def _ids() -> torch.Tensor:
    return torch.randint(3, _WORDS, (_ROWS, _LENGTH))


def _text() -> dict[str, torch.Tensor]:
    ids = _ids()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _images() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(_ROWS, 3, _PIXELS, _PIXELS)}


def bert() -> Made:
    """Encoder with classes of a whole text."""
    config = transformers.BertConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=2 * _WIDTH,
    )
    return transformers.BertForSequenceClassification(config), _text()


def distilbert() -> Made:
    """Encoder with classes of a whole text."""
    config = transformers.DistilBertConfig(
        vocab_size=_WORDS, dim=_WIDTH, n_layers=_LAYERS, n_heads=_HEADS, hidden_dim=2 * _WIDTH
    )
    return transformers.DistilBertForSequenceClassification(config), _text()


def gpt2() -> Made:
    """Decoder that predicts words."""
    config = transformers.GPT2Config(
        vocab_size=_WORDS, n_embd=_WIDTH, n_layer=_LAYERS, n_head=_HEADS, n_positions=64,
        use_cache=False,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), _text()


def llama() -> Made:
    """Decoder with RMSNorm, rotary positions and gated layers."""
    config = transformers.LlamaConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS // 2,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), _text()


def vit() -> Made:
    """Vision transformer with classes."""
    config = transformers.ViTConfig(
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=2 * _WIDTH,
        image_size=_PIXELS,
        patch_size=_PATCH,
    )
    return transformers.ViTForImageClassification(config), _images()


def t5() -> Made:
    """Encoder and decoder."""
    config = transformers.T5Config(
        vocab_size=_WORDS,
        d_model=_WIDTH,
        d_kv=_WIDTH // _HEADS,
        d_ff=2 * _WIDTH,
        num_layers=_LAYERS,
        num_heads=_HEADS,
        use_cache=False,
    )
    inputs = {"input_ids": _ids(), "decoder_input_ids": _ids()}
    return transformers.T5ForConditionalGeneration(config), inputs


def segformer() -> Made:
    """Hierarchical vision transformer with a map of classes."""
    config = transformers.SegformerConfig(
        hidden_sizes=[16, 32, 32, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=_WIDTH,
    )
    inputs = {"pixel_values": torch.randn(_ROWS, 3, 2 * _PIXELS, 2 * _PIXELS)}
    return transformers.SegformerForSemanticSegmentation(config), inputs


def wav2vec2() -> Made:
    """Encoder of sound with characters of it."""
    config = transformers.Wav2Vec2Config(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=2 * _WIDTH,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 2),
        conv_kernel=(10, 4, 2),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return transformers.Wav2Vec2ForCTC(config), {"input_values": torch.randn(_ROWS, _SAMPLES)}


def whisper() -> Made:
    """Encoder of mel spectra."""
    config = transformers.WhisperConfig(
        vocab_size=_WORDS,
        d_model=_WIDTH,
        encoder_layers=_LAYERS,
        decoder_layers=1,
        encoder_attention_heads=_HEADS,
        decoder_attention_heads=_HEADS,
        encoder_ffn_dim=2 * _WIDTH,
        decoder_ffn_dim=2 * _WIDTH,
        num_mel_bins=16,
        max_source_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs = {"input_features": torch.randn(_ROWS, 16, 64)}
    return transformers.WhisperModel(config).encoder, inputs


_SIZES = {
    "hidden_size": _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "intermediate_size": 2 * _WIDTH,
}
_DECODER = {"vocab_size": _WORDS, "num_key_value_heads": _HEADS // 2, "use_cache": False, **_SIZES}
_PATCHES = {"image_size": _PIXELS, "patch_size": _PATCH, **_SIZES}


def albert() -> Made:
    """Encoder whose layers share their weights."""
    config = transformers.AlbertConfig(vocab_size=_WORDS, embedding_size=_WIDTH // 2, **_SIZES)
    return transformers.AlbertForSequenceClassification(config), _text()


def deberta_v2() -> Made:
    """Encoder whose attention knows distances."""
    config = transformers.DebertaV2Config(
        vocab_size=_WORDS,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        **_SIZES,
    )
    return transformers.DebertaV2ForSequenceClassification(config), _text()


def qwen3() -> Made:
    """Decoder that normalizes queries and keys."""
    config = transformers.Qwen3Config(head_dim=_WIDTH // _HEADS, **_DECODER)
    return transformers.Qwen3ForCausalLM(config), _text()


def gemma2() -> Made:
    """Decoder with logits and scores that tanh bounds, and windows of attention."""
    config = transformers.Gemma2Config(
        head_dim=_WIDTH // _HEADS,
        query_pre_attn_scalar=_WIDTH // _HEADS,
        sliding_window=4,
        **_DECODER,
    )
    return transformers.Gemma2ForCausalLM(config), _text()


def mixtral() -> Made:
    """Decoder with a mixture of experts."""
    config = transformers.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **_DECODER)
    model = transformers.MixtralForCausalLM(config)
    model.set_experts_implementation("batched_mm")
    return model, _text()


def mamba() -> Made:
    """State space model that predicts words."""
    config = transformers.MambaConfig(
        vocab_size=_WORDS, hidden_size=_WIDTH, num_hidden_layers=_LAYERS, state_size=4,
        use_cache=False,
    )  # fmt: skip
    return transformers.MambaForCausalLM(config), {"input_ids": _ids()}


def bart() -> Made:
    """Encoder and decoder with learned positions."""
    config = transformers.BartConfig(
        vocab_size=_WORDS,
        d_model=_WIDTH,
        encoder_layers=_LAYERS,
        decoder_layers=_LAYERS,
        encoder_attention_heads=_HEADS,
        decoder_attention_heads=_HEADS,
        encoder_ffn_dim=2 * _WIDTH,
        decoder_ffn_dim=2 * _WIDTH,
        max_position_embeddings=64,
        use_cache=False,
    )
    inputs = {"input_ids": _ids(), "decoder_input_ids": _ids()}
    return transformers.BartForConditionalGeneration(config), inputs


def clip_vision() -> Made:
    """Vision transformer of CLIP."""
    config = transformers.CLIPVisionConfig(projection_dim=_WIDTH, **_PATCHES)
    return transformers.CLIPVisionModelWithProjection(config), _images()


def dinov2() -> Made:
    """Vision transformer with scaled layers."""
    config = transformers.Dinov2Config(mlp_ratio=2, **_PATCHES)
    return transformers.Dinov2ForImageClassification(config), _images()


MODELS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        *(bert, distilbert, gpt2, llama, vit, t5, segformer, wav2vec2, whisper),
        *(albert, deberta_v2, qwen3, gemma2, mixtral, mamba, bart, clip_vision, dinov2),
    )
}
"""Name -> model with random weights, example inputs by name."""
