"""Text of others, such as a name in a file, made safe for a terminal and a page."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Return text on one line without control characters: what Python's ``repr`` escapes is escaped.

    These are newlines, escape sequences, marks that turn the direction of writing, and lone surrogates, which
    no encoding of a terminal or a file takes.

    Examples:
        >>> print(printable("a\x1b[2Jb\nc"))
        a\x1b[2Jb\nc
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
