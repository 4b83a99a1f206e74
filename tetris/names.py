"""Names a person types: the error that lists the known ones and points at the nearest."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, text: str, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is none of the known ones.

    Args:
        kind: What the name should have named, such as ``"feature"``.
        text: What was given.
        known: The names there are, in the order to list them in.
    """
    names = list(known)
    nearest = get_close_matches(text.lower(), names, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return ValueError(f"expected a {kind} among {', '.join(names)}; got {text!r}{hint}")
