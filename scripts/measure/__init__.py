"""What measures: benchmarks, equality of the engines, sanitizers, reproduction, time to target.

Begin with `table.py`: a row a measurement.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
