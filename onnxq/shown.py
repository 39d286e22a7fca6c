r"""Names of others as they are shown: no control character of a file reaches a terminal or a page.

    "a\x1b]0;title\x07"   ->  a\x1b]0;title\x07      what a terminal would obey
    "a\u202eb", "\udcff"  ->  a\u202eb, \udcff       bidirectional marks, bytes that are no text

Text passes here where it leaves: errors, sentences and tables of the command line, JSON, pages.
"""

_SPACES = "\xa0\u2009\u202f"  # that our own sentences have


def shown(text: str) -> str:
    """One line: everything that does not print is escaped, ends of lines too."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in _SPACES else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def shown_lines(text: str) -> str:
    """The same of a message of several lines: those behind the first begin with a space.

    So no name can begin a line of its own that looks like one of ours.
    """
    if text.isprintable():
        return text
    end = text[len(text.rstrip("\n")) :]
    first, *more = map(shown, text.removesuffix(end).split("\n"))
    return (
        "\n".join([first, *(line if line[:1] in ("", " ") else f"  {line}" for line in more)]) + end
    )


def shown_json(text: str) -> str:
    """JSON of ASCII, in which json.dumps leaves one character that does not print."""
    return text.replace("\x7f", "\\u007f")
