"""Checks of arguments that are integers or flags, shared by all packages."""

from numbers import Integral


def check_integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return the argument ``name`` as an int, if it is an integer from ``low`` to ``high``.

    A float without a fraction, such as 1e4, counts as an integer.

    Raises:
        TypeError: If it is not an integer, or is a bool.
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


def check_uint64(name: str, value: object) -> int:
    """Return the argument ``name`` as an int, if it is an unsigned integer of 64 bits."""
    return check_integer(name, value, 0, (1 << 64) - 1)


def check_flags(**flags: object) -> None:
    """Raise TypeError if one of the named flags is not a bool."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"expected {name} to be a bool, got {flag!r}")
