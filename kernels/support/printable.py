"""Makes the text of others, such as a name in a file, safe for terminals and pages."""


def printable(text: object) -> str:
    r"""Return text on one line, with the characters escaped that Python's ``repr`` escapes.

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
