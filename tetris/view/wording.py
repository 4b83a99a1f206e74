"""Counts and sizes as people read them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural but for 1: ``1 line``, ``1,200 lines``."""
    return f"{count:,} {noun}{'s'[: count != 1]}"


def file_size(size: int) -> str:
    """Return the size of a file, given in bytes, in kilobytes; below one in bytes."""
    return counted(size, "byte") if size < 1000 else f"{size / 1e3:,.0f} kB"
