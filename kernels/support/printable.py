"""Makes foreign text, such as a name in a file, safe for terminals and pages."""


def printable(text: object) -> str:
    r"""Return text on one line, with the characters escaped that Python's ``repr`` escapes.

    These are newlines, escape sequences, marks that change the direction of writing, and lone
    surrogates, which terminals and files cannot encode.

    Examples:
        >>> print(printable("a\x1b[2Jb\nc"))
        a\x1b[2Jb\nc
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, which is plural unless the count is 1: ``1,200 lines``."""
    ending = "" if count == 1 else "s"
    return f"{count:,} {noun}{ending}"
