"""Notes for the user on an imported model: collected while it is read, given as warnings."""

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar


class ImportedModelWarning(UserWarning):
    """An imported model is not what it should be, in some channels or on some machines."""


_notes: ContextVar[list[str] | None] = ContextVar("onnxq_import_notes", default=None)


def note(text: str) -> None:
    """Keeps a sentence for the user; each is said once."""
    notes = _notes.get()
    if notes is None:
        warnings.warn(text, ImportedModelWarning, stacklevel=2)
        return
    if text not in notes:
        notes.append(text)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """A context in which notes are held back: a filter that makes them errors breaks nothing."""
    token = _notes.set([])
    try:
        found = _notes.get()
        assert found is not None
        yield found
    finally:
        _notes.reset(token)
