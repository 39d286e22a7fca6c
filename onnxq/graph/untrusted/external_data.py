"""External data: regular files in the model's own folder, with the bytes that each tensor wants.

Whoever writes a model also writes the locations of its weights. Bytes that are read end in the
quantized model, so that a location must not lead to a file that the model's folder does not hold:
not by "..", not by a link, symbolic or hard, not through a device or a FIFO.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx_ir as ir

from onnxq.graph.untrusted.problem import DAMAGED, Problem
from onnxq.graph.untrusted.scopes import all_tensors

MAX_SHOWN = 80  # characters of a location in a message


def set_folder(model: ir.Model, folder: Path) -> None:
    """Sets the folder of every external tensor, those of functions too."""
    for _, tensor in all_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = folder


def check_folder_is_known(model: ir.Model) -> Iterator[Problem]:
    """Finds an external tensor of a ModelProto, which does not say in which folder it lay."""
    for name, tensor in all_tensors(model):
        if isinstance(tensor, ir.ExternalTensor) and tensor.size:
            yield Problem(
                f"the data of tensor '{name}' are in the file {_shown(tensor)}, and a ModelProto "
                "does not say in which folder that is",
                "Give the path of the model, or a proto with its data (onnx.load(path)).",
            )
            return


def check_external_data(model: ir.Model) -> Iterator[Problem]:
    """Finds an external tensor outside of its folder, or in a file that does not hold it."""
    sizes: dict[str, int | Problem] = {}
    for name, tensor in all_tensors(model):
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        key = f"{os.fspath(tensor.base_dir)}\0{os.fspath(tensor.location)}\0{tensor.size == 0}"
        if key not in sizes:
            sizes[key] = _size_of_file(tensor, name)
        size = sizes[key]
        problem = size if isinstance(size, Problem) else _check_extent(tensor, name, size)
        if problem is not None:
            yield problem


def _check_extent(tensor: ir.ExternalTensor, name: str, size: int) -> Problem | None:
    if tensor.size == 0:
        return None
    offset = tensor.offset or 0
    if tensor.dtype == ir.DataType.STRING:
        return Problem(f"tensor '{name}' of strings is in {_shown(tensor)}; only numbers can be")
    length = tensor.nbytes if tensor.length is None else tensor.length
    if length != tensor.nbytes:
        return Problem(
            f"tensor '{name}' is said to have {length} bytes in {_shown(tensor)}, its type and "
            f"shape want {tensor.nbytes}"
        )
    if offset < 0:
        return Problem(f"tensor '{name}' begins at byte {offset} of {_shown(tensor)}")
    if offset + length > size:
        return Problem(
            f"external data file {_shown(tensor)} is too short: it has {size} bytes, tensor "
            f"'{name}' ends at {offset + length}",
            "Copy or download it again.",
        )
    return None


def _size_of_file(tensor: ir.ExternalTensor, name: str) -> int | Problem:
    """Bytes of the tensor's file, or why it is not read; nothing is opened."""
    location, folder = os.fspath(tensor.location), Path(os.fspath(tensor.base_dir) or ".")
    shown = f"external data file {_shown(tensor)} (tensor '{name}')"
    if not isinstance(location, str) or not location or "\0" in location or location[-1] == "/":
        return Problem(f"the name of {shown} is no file name", DAMAGED)
    beside = "Put the file itself beside the model."
    if leaves_folder(location):
        return Problem(f"{shown} lies outside the model's folder '{folder}'", beside)
    path = folder / location
    try:
        real = path.resolve()
        inside = real.is_relative_to(folder.resolve())
        state = path.stat()
    except FileNotFoundError:
        if tensor.size == 0:  # nothing is read of it; only where it would be counts
            return 0
        return Problem(f"external data file '{path}' is missing (tensor '{name}' is in it)", beside)
    except (OSError, RuntimeError) as error:  # too long; links in a circle, before Python 3.13
        reason = error.strerror if isinstance(error, OSError) else "links lead in a circle"
        return Problem(f"{shown} cannot be read: {reason}", beside)
    if not inside:
        return Problem(
            f"{shown} lies outside the model's folder, at '{real}'",
            "Copy it, not a link to it, beside the model.",
        )
    if not stat.S_ISREG(state.st_mode):
        return Problem(f"{shown} is no regular file", beside)
    if state.st_nlink > 1:
        return Problem(
            f"external data file '{path}' has several hard links, which onnx refuses for safety",
            "Copy it beside the model.",
        )
    return state.st_size


def leaves_folder(location: str) -> bool:
    """Whether a path within a folder is absolute or has "..", on whatever system it was written."""
    windows, here = PureWindowsPath(location), PurePosixPath(location)
    absolute = here.is_absolute() or bool(windows.drive)
    return absolute or ".." in here.parts or ".." in windows.parts


def _shown(tensor: ir.ExternalTensor) -> str:
    location = str(os.fspath(tensor.location))
    return repr(location if len(location) <= MAX_SHOWN else location[:MAX_SHOWN] + "...")
