"""Why a file is not a model: words for the person who has to find the right file."""

from __future__ import annotations

# ModelProto's field numbers and wire types (onnx.proto): 0 varint, 2 length-delimited
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_LENGTH_DELIMITED = 2
_SAMPLE_BYTES = 512


def why_unreadable(data: bytes) -> str:
    """A sentence about bytes that do not parse as an ONNX ModelProto."""
    if not data:
        return "the file is empty."
    if data.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; run 'git lfs pull' to get the model itself."
    if data.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        return (
            "it is a file of NumPy or PyTorch (.npz, .npy, .pt), not an ONNX model. The model "
            "comes first, the samples behind it."
        )
    if _is_text(data[:_SAMPLE_BYTES]):
        return "it is a text file, not an ONNX model (binary protobuf)."
    wanted = _wanted_bytes(data)
    if wanted > len(data):
        return (
            f"the file is truncated: it has {len(data)} bytes, its header promises at least "
            f"{wanted}. Copy or download it again."
        )
    if wanted == len(data):
        return (
            "it looks like an ONNX model and is damaged inside, or If, Loop and Scan lie deeper in "
            "each other than protobuf reads (some 30). Export it again."
        )
    return "it is not an ONNX model (binary protobuf)."


def _is_text(sample: bytes) -> bool:
    try:
        text = sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:  # a character cut at the end of the sample is no proof
            return False
        text = sample[: error.start].decode("utf-8")
    return bool(text) and all(c.isprintable() or c in "\n\r\t" for c in text)


def _wanted_bytes(data: bytes) -> int:
    """The size that the top-level fields add up to; 0 where they are not those of a ModelProto."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return 0
        length, position = _varint(data, position)
        if tag & 7 == _LENGTH_DELIMITED:
            position += length
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint and the position behind it; one past the end where the data ends inside."""
    value = shift = 0
    while position < len(data):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1
