"""Quantized tensors on disk: an npz of the integers and their qparams, a quarter of the float size.

    "integers"    dtype.storage, the tensor's shape
    "qparams"  the JSON of QParams.to_dict, as bytes

Not compressed, so that the size can be told ahead; never pickled.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

from onnxq.core.atomic import write_atomically
from onnxq.errors import ModelError, OnnxqError
from onnxq.qparams import QParams
from onnxq.qtensor.tensor import QTensor, check_tensor

DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, OnnxqError)
"""Errors that reading a truncated or altered npz or its JSON raises."""


def save(tensor: QTensor, path: str | Path) -> None:
    """Writes the tensor to path, whole or not at all.

    Raises:
        ShapeError: tensor is no QTensor.
        OutputError: the file cannot be written; an old one stays, and nothing is left behind.
    """
    check_tensor("save", tensor, "tensor")
    integers = tensor.int_repr()
    qparams = np.frombuffer(json.dumps(tensor.qparams.to_dict()).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, integers=integers, qparams=qparams))


def load(path: str | Path) -> QTensor:
    """The tensor that `save` wrote.

    Raises:
        ModelError: there is no such file, or it is damaged or none of `save`.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            qparams = QParams.from_dict(json.loads(arrays["qparams"].tobytes()))
            return QTensor(arrays["integers"], qparams)
    except DAMAGED as error:
        raise ModelError(
            f"load: '{path}' cannot be read as a quantized tensor ({type(error).__name__}: "
            f"{error}). Give a file that onnxq.qtensor.save wrote."
        ) from error
