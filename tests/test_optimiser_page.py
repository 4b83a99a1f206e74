"""docs/optimiser.md: its programs run, and what it says of settings holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from cem.termination import Termination

TEXT = (Path(__file__).parents[1] / "docs" / "optimiser.md").read_text(encoding="utf-8")
WHOLE, BATCH, GRAPH = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


def run(program: str) -> dict[str, Any]:
    """Run a program; returns its variables."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "optimiser.md", "exec"), names)
    return names


def test_a_function_is_minimised() -> None:
    result = run(WHOLE)["result"]
    assert torch.allclose(result.x, torch.full((5,), 3.0), atol=1e-3)
    assert f'`"{result.reason}"`' in TEXT


def test_a_thousand_problems_are_solved_side_by_side() -> None:
    names = run(BATCH)
    assert (names["search"].mean - names["targets"][:, 0]).abs().max() < 1e-3


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and a CUDA build of torch")
def test_generations_run_in_a_graph() -> None:
    search = run(GRAPH)["search"]
    assert search.generation == 500
    assert (search.mean - 3.0).abs().max() < 1e-2


def test_every_reason_of_a_search_is_explained() -> None:
    search = Termination(dim=1, population_size=2, maximize=False, target=0.0)
    found = {reason for t in range(1, 300) for reason in search.reasons(t, 0.0, 0.0, 0.0, 0.0)}
    assert len(found) == 4
    assert all(f'| `"{reason}"` |' in TEXT for reason in found)
