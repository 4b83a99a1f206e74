"""Philox4x32-10 in plain Python: the reference of ``philox.h``.

A counter-based generator has no state: four random words are a pure function of a 128-bit
counter and a 64-bit key. So any number of any stream can be computed anywhere, in any order.
Constants and rounds follow Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
1, 2, 3", SC 2011; the tests contain the paper's test vectors.
"""

from typing import Any

MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
# Every round adds these to the two words of the key.
WEYL_0 = 0x9E3779B9  # from the golden ratio
WEYL_1 = 0xBB67AE85  # from sqrt(3) - 1
ROUNDS = 10

WORD = 0xFFFFFFFF  # the mask of a 32-bit word


def split64(value: int) -> tuple[int, int]:
    """Split an unsigned 64-bit integer into its low and its high 32 bits."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"expected an unsigned 64-bit integer (0..2^64 - 1), got {value}")
    return value & WORD, value >> 32


def signed64(value: int) -> int:
    """Return the signed 64-bit integer with the same bits as an unsigned one.

    Operators take signed integers.
    """
    return value - (1 << 64) if value >> 63 else value


def philox4x32(
    counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]
) -> tuple[Any, Any, Any, Any]:
    """Return the four random words that Philox4x32-10 computes from a counter and a key.

    All words are unsigned 32-bit integers. They may be ints, or int64 tensors whose shapes can
    be broadcast.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * c0
        product_1 = MULTIPLIER_1 * c2
        # In int64 tensors a product may overflow and become negative. The right shift then
        # fills with ones, which the mask removes. (WORD is 2**32 - 1.)
        high_0 = (product_0 >> 32) & WORD
        high_1 = (product_1 >> 32) & WORD
        c0 = high_1 ^ c1 ^ k0
        c1 = product_1 & WORD
        c2 = high_0 ^ c3 ^ k1
        c3 = product_0 & WORD
        k0 = (k0 + WEYL_0) & WORD
        k1 = (k1 + WEYL_1) & WORD
    return c0, c1, c2, c3
