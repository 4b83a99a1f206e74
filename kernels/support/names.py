"""Errors for unknown names, which list the known names and suggest the most similar one."""

import os
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

_FEW = 12
"""The largest number of known names that an error lists before the name that was typed."""

_OTHERWISE = {"gpu": "cuda", "nvidia": "cuda", "c++": "cpu", "cpp": "cpu"}
"""Names that people type, with the right suggestion where similar spelling would mislead."""


def unknown_name(kind: str, text: str, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is not one of the known names.

    ``kind`` is what the name should denote, for example ``"feature"``.
    """
    names = list(known)
    article = "an" if kind[0] in "aeio" else "a"
    hint = did_you_mean(text, names)
    got = f"got {text!r}{hint}"
    if len(names) > _FEW:
        listing = "" if hint else f" (known: {', '.join(names)})"
        return ValueError(f"expected {article} {kind}, {got}{listing}")
    return ValueError(f"expected {article} {kind} among {', '.join(names)}; {got}")


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'NAME'?"``, or an empty text if no known name is similar.

    Examples:
        >>> did_you_mean("Quik", ["quick", "standard"])
        "; did you mean 'quick'?"
    """
    meant = _find_nearest(text, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def meant_path(path: str | os.PathLike[str]) -> str:
    """Return ``"; did you mean 'PATH'?"``, or an empty text if no file has a similar name."""
    missing = Path(path)
    with suppress(OSError):
        meant = _find_nearest(missing.name, (entry.name for entry in missing.parent.iterdir()))
        if meant is not None:
            return f"; did you mean {str(missing.parent / meant)!r}?"
    return ""


def _find_nearest(text: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, in any case, or None if no name is similar."""
    lowered = {name.lower(): name for name in known if name != text}
    text = text.strip().lower()
    nearest = [_OTHERWISE.get(text, ""), *get_close_matches(text, lowered, n=1)]
    return next((lowered[name] for name in nearest if name in lowered), None)
