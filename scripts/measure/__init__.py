"""Measurements: benchmarks, equality of engines, sanitizers, studies. Begin with `table.py`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
