"""docs/planner.md: its programs run, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

TEXT = (Path(__file__).parents[1] / "docs" / "planner.md").read_text(encoding="utf-8")


def test_a_point_is_moved_and_the_carts_come_to_the_origin() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    names: dict[str, Any] = {"__name__": "example"}
    torch.manual_seed(1)  # the first planner has no seed of its own
    exec(programs[0], names)
    assert float(names["action"]) < 0
    exec(programs[1], names)
    # The seed is fixed; the carts begin up to 3 away, with speeds up to 3.
    assert float(names["state"].abs().max()) < 0.1
