"""docs/planner.md: its program runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TEXT = (Path(__file__).parents[1] / "docs" / "planner.md").read_text(encoding="utf-8")


def test_the_carts_come_to_the_origin() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    names: dict[str, Any] = {"__name__": "example"}
    exec(next(program for program in programs if "import" in program), names)
    # The seed is fixed; the carts begin up to 3 away, with speeds up to 3.
    assert float(names["state"].abs().max()) < 0.1
