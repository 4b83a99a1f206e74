"""What of scripts/benchmark_operators.py's measurements goes into tables, in a terminal and in the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = list[dict[str, str]]
_PASSES = ("forward", "inference", "backward")
_LABELS = {"plain": "plain PyTorch", "compile": "torch.compile of it", "ours": "lltm"}


def elementwise_rows(result: Mapping[str, Any]) -> Rows:
    """Return the elementwise operators, one a line: bandwidth, share of a copy's, time beside PyTorch's."""
    rows = []
    for row in result["rows"]:
        copy = row["operator"] == "copy"
        rows.append(
            {
                "operator": row["operator"],
                "dtype": row["dtype"],
                "elements": f"{row['elements']:,}",
                "us": digits(row["us"]),
                "GB/s": digits(row["gb_per_s"]),
                "of a copy": "-" if copy else f"{row['fraction_of_copy']:.1%}",
                "PyTorch's, us": "-" if copy else digits(row["torch_us"]),
                "speed-up": "-" if copy else f"{row['of_torch']:.2f}x",
                "spread": f"{row['spread']:.1%}",
            }
        )
    return rows


def lltm_rows(result: Mapping[str, Any]) -> Rows:
    """Return the LLTM cell, an implementation at a size a line: time of each pass, and ours beside it."""
    rows = []
    for size in result["sizes"]:
        shape = f"{size['batch']:,} x {size['inputs']:,} -> {size['states']:,}"
        for name, passes in size["microseconds"].items():
            row = {"batch x inputs -> states": shape, "": _LABELS[name]}
            for each in _PASSES:
                row[f"{each}, us"] = digits(passes[each]["median"])
                ratio = size["speedups"][each].get(name)
                row[f"lltm's {each}"] = "-" if ratio is None else f"{ratio:.2f}x as fast"
            rows.append(row)
    return rows


def digits(value: float) -> str:
    """Return a number as a person reads it: three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
