"""Philox4x32-10 against the known answers published with Random123."""

from __future__ import annotations

import pytest

from kernels.ops.philox import philox4x32, signed64, split64

KNOWN_ANSWERS = [  # counter, key, result: the philox4x32 10 lines of Random123's kat_vectors
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def _words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


def test_known_answers() -> None:
    for counter, key, result in KNOWN_ANSWERS:
        c0, c1, c2, c3 = _words(counter)
        k0, k1 = _words(key)
        assert philox4x32((c0, c1, c2, c3), (k0, k1)) == _words(result)


def test_split64_puts_the_low_word_first() -> None:
    assert split64(0x299F31D0A4093822) == (0xA4093822, 0x299F31D0)
    assert list(map(signed64, (2**63 - 1, 2**63))) == [2**63 - 1, -(2**63)]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unsigned 64-bit.*got -1"):
        split64(-1)
