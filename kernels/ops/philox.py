"""Philox4x32-10 in plain Python: the reference of ``philox.h``.

A counter-based generator has no state: four random words are a pure function of a 128-bit
counter and a 64-bit key, so any number of any stream can be computed anywhere, in any order.
Constants and rounds follow Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
1, 2, 3", SC 2011; the tests hold the paper's known answers.
"""

from typing import Any

MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
WEYL_0 = 0x9E3779B9  # the golden ratio: the key's first word grows by it after every round
WEYL_1 = 0xBB67AE85  # sqrt(3) - 1: the same for the second word
ROUNDS = 10

WORD = 0xFFFFFFFF


def split64(value: int) -> tuple[int, int]:
    """Split an unsigned 64-bit integer into its low and its high 32 bits."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"expected an unsigned 64-bit integer (0..2^64 - 1), got {value}")
    return value & WORD, value >> 32


def signed64(value: int) -> int:
    """Return the signed 64-bit integer that has the bits of an unsigned one.

    Operators take signed integers.
    """
    return value - (1 << 64) if value >> 63 else value


def philox4x32(
    counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]
) -> tuple[Any, Any, Any, Any]:
    """Return the four random words that Philox4x32-10 makes of a counter and a key.

    All words are unsigned and have 32 bits. They may be ints, or int64 tensors whose shapes
    broadcast.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * c0
        product_1 = MULTIPLIER_1 * c2
        # A product of int64 tensors may be negative: the mask removes the copies of its sign.
        high_0 = product_0 >> 32 & WORD
        high_1 = product_1 >> 32 & WORD
        c0 = high_1 ^ c1 ^ k0
        c1 = product_1 & WORD
        c2 = high_0 ^ c3 ^ k1
        c3 = product_0 & WORD
        k0 = (k0 + WEYL_0) & WORD
        k1 = (k1 + WEYL_1) & WORD
    return c0, c1, c2, c3
