from __future__ import annotations

from onnxq import authoring


def test_all_is_sorted_and_every_name_is_described() -> None:
    assert authoring.__all__ == sorted(set(authoring.__all__))
    assert authoring.__doc__ is not None
    for name in authoring.__all__:
        assert getattr(authoring, name).__doc__
        assert name in authoring.__doc__
