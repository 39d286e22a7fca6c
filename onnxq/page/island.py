"""The data island of a page: JSON inside of a script element, which no text in it can leave.

Every character outside of ASCII is written as an escape, and so are <, > and &: whatever a tensor
is called, `</script>`, `<!--`, quotes and line separators stay text. The element's type is no
script's, so that nothing of it ever runs.
"""

from __future__ import annotations

import json

from markupsafe import Markup

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def island(data: object) -> Markup:
    """JSON text that can stand between <script type="application/json"> and </script>.

    Args:
        data: dicts, lists, strings, finite numbers.

    Raises:
        ValueError: a number that is not finite.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))  # escaped above
