"""Checks of integers and flags that are arguments, shared by all packages."""

from numbers import Integral


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return an integer from ``low`` to ``high``, an argument of a name, as an int; 1e4 is one.

    Raises:
        TypeError: If it is no integer, or a bool.
        ValueError: If it is out of range.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"expected {name} to be an int, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        wanted = f">= {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"expected {name} {wanted}, got {number}")
    return number


def check_flags(**flags: object) -> None:
    """Raise TypeError where a flag, by its name, is no bool."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"expected {name} to be a bool, got {flag!r}")
