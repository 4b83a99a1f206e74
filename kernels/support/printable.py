"""Text for people: text of others, such as a name in a file, made safe for terminals and pages; counts."""


def printable(text: object) -> str:
    r"""Return text on one line without control characters: what Python's ``repr`` escapes is escaped.

    These are newlines, escape sequences, marks that turn the direction of writing, and lone
    surrogates, which no encoding of a terminal or a file takes.

    Examples:
        >>> print(printable("a\x1b[2Jb\nc"))
        a\x1b[2Jb\nc
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural but for 1: ``1 line``, ``1,200 lines``."""
    return f"{count:,} {noun}{'s'[: count != 1]}"
