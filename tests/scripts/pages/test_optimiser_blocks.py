"""What the pages say of the optimiser, from results made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measure import behaviour
from pages import optimiser_blocks, result_files

HEAD = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-02T03:04:05+00:00",
    "command": "python x.py",
    "versions": {"torch": "2.13.0+cpu"},
}
CPU = {"processor": "Test CPU", "cores": 2}
GPU = {**CPU, "gpu": "NVIDIA Test", "cuda": "13.0"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of result files."""
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    return tmp_path


def write(folder: Path, name: str, machine: Any, figures: Any, data: Any) -> None:
    """Write a result file."""
    path = folder / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**HEAD, "machine": machine, "figures": figures, "data": data}))


def write_optimizers(folder: Path) -> None:
    """Write the shares of three searches, and the behaviour of two."""
    solved = {"cem": (0.46, 0.34), "cem_full_restarts": (0.78, 0.65), "pycma_ipop": (0.74, 0.65)}
    searches = {
        name: {
            "label": f"label of {name}",
            **{
                dim: {"solved": share, "standard_error": 0.01, "collapsed": 0.0 if name == "cem" else None}
                for dim, share in zip(("d5", "d20"), shares, strict=True)
            },
        }
        for name, shares in solved.items()
    }
    figures = {
        f"bbob.{name}.{dim}.solved": share
        for name, shares in solved.items()
        for dim, share in zip(("d5", "d20"), shares, strict=True)
    }
    told = {"refused_generations": 0.0, "message": None}
    refused = {"refused_generations": 1.0, "message": "no bounds"}
    outcomes = {
        "cem": {
            **{case: {**told, "error": 2.2e-7} for case in ("nan", "inf", "integer", "bounds")},
            "failed": {**refused, "error": 3e-7},
            "plateau": {**told, "std_ratio": 0.18},
            "resume": {**told, "same": 1.0},
        },
        "evotorch": {
            **{case: {**told, "error": "NaN"} for case in ("nan", "inf", "integer", "failed")},
            "bounds": refused,
            "plateau": {**told, "std_ratio": 0.0083},
            "resume": {**told, "same": 0.0},
        },
    }
    data = {"quality": {"searches": searches}, "behaviour": outcomes}
    write(folder, "here/optimizers", CPU, figures, data)


def test_nothing_is_said_where_nothing_was_measured(results: Path) -> None:
    for block in ("optimiser_claim", "bbob", "behaviour", "generations", "large_generation"):
        assert getattr(optimiser_blocks, block)() == ""


def test_searches_stand_in_the_order_of_what_they_reach(results: Path) -> None:
    write_optimizers(results)
    rows = optimiser_blocks.bbob().splitlines()[2:5]
    assert [row.split("|")[1].strip() for row in rows] == [
        "label of cem_full_restarts",
        "label of pycma_ipop",
        "**label of cem**",
    ]
    assert rows[2].endswith("| 0.460 ± 0.010 | 0.340 ± 0.010 | 0% / 0% |")
    assert rows[1].endswith("| - / - |")


def test_what_awkward_fitness_does_has_a_row_for_each_case(results: Path) -> None:
    write_optimizers(results)
    rows = optimiser_blocks.behaviour().splitlines()
    assert rows[0] == "| fitness | `cem` | evotorch CEM |"
    assert rows[2].endswith("| 2e-07 | NaN |")
    assert rows[4].endswith("| 3e-07, an error is raised | NaN |")
    assert rows[6].endswith("| 2e-07 | no |")
    assert rows[7:9] == [
        "| constant: standard deviation left | 0.2 | 0.008 |",
        "| a pickled copy goes on the same | yes | no |",
    ]


def test_every_case_and_peer_that_is_measured_is_shown() -> None:
    assert set(optimiser_blocks.CASES) == {*behaviour.FITNESS, "resume"}
    assert set(optimiser_blocks.PEERS) == set(behaviour.OPTIMISERS)


def test_a_generation_has_a_row_for_each_method_and_a_column_for_each_shape(results: Path) -> None:
    figures = {
        "cem.generation.graph.1024x100.us": 14.2,
        "cem.generation.eager.1024x100.us": 50.1,
        "cem.generation.eager.64x128x20.us": 52.0,
        "torch.generation.eager.1024x100.us": 101.0,
    }
    shapes = {"1024x100": {}, "64x128x20": {}}
    write(results, "there/generation", GPU, figures, {"shapes": shapes})
    rows = optimiser_blocks.generations().splitlines()
    assert rows[0] == "| us a generation | 1,024 x 100 | 64 problems of 128 x 20 |"
    assert rows[2:5] == [
        "| `cem`, CUDA graph of 20 generations | 14.2 | - |",
        "| `cem` | 50.1 | 52 |",
        "| ten lines of PyTorch | 101 | - |",
    ]
    key = "cem.generation.1000000x1024"
    write(results, "there/large_generation", GPU, {f"{key}.over_ask": 1.1, f"{key}.over_fill": 1.21}, {})
    assert "ask and tell take 1.10 times as long as ask, which writes the samples, and 1.21 times" in (
        optimiser_blocks.large_generation()
    )


def test_the_claim_joins_quality_and_speed(results: Path) -> None:
    write_optimizers(results)
    assert "78% and 65% of the targets" in optimiser_blocks.optimiser_claim()
    assert "in a CUDA graph" not in optimiser_blocks.optimiser_claim()
    times = {"cem": (48.0, 14.2), "torch": (101.0, 64.0)}
    figures = {
        f"{name}.generation.{mode}.1024x100.us": time
        for name, each in times.items()
        for mode, time in zip(("eager", "graph"), each, strict=True)
    }
    write(results, "there/generation", GPU, figures, {"shapes": {}})
    claim = optimiser_blocks.optimiser_claim()
    assert "takes 48 us and in a CUDA graph 14.2 us; ten lines of PyTorch take 101 and 64 us" in claim
    assert claim.count("](") == 2
