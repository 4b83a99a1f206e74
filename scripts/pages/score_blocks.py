"""How good the learned controllers are, and how long training takes: blocks of README and docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pages.literature_blocks import TETR_AI
from pages.result_files import figures, load, load_all, with_provenance
from pages.wording import in_words, markdown, span
from tetris.evaluation.comparison import LEARNED
from tetris.record.numbers import format_lines

_PROCESSOR, _GPU = "epyc-2core", "h200"


def _on_board(run: Mapping[str, Any], controller: str, board: str) -> Mapping[str, Any]:
    """Return a controller's score on a board: the estimate where there is one in which games ended."""
    estimates = (x for x in run.get("estimates", ()) if x["lines_per_game"] is not None)
    of = controller, board
    return next(x for x in (*estimates, *run["score"]) if (x["controller"], x["board"]) == of)


def middle_run(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the run whose controller is the median on 10x20."""
    return sorted(runs, key=lambda run: float(_on_board(run, LEARNED, "10x20")["lines_per_game"]))[
        len(runs) // 2
    ]


def results() -> str:
    """Return lines per game on 10x20 of dt20 and of what was learned: the table of README."""
    runs, other = load(f"{_PROCESSOR}/training").data["runs"], load("h100/next_piece")
    trained, scored = load(f"{_GPU}/record_training"), load(f"{_GPU}/record_score")
    best, dt20 = scored.data["score"]
    middle = _on_board(middle_run(runs), LEARNED, "10x20")
    wanted = ("best", "10x20", True)
    (ahead,) = (x for x in other.data["estimates"] if (x["controller"], x["board"], x["lookahead"]) == wanted)
    minutes = trained.figures["record.training_seconds"] / 60
    times = middle["lines_per_game"] / _on_board(runs[0], "dt20", "10x20")["lines_per_game"]
    rows = [
        ["dt20", _lines(dt20), "1"],
        ["learned by the first command", f"{_lines(middle)}, estimated", f"{times:.2g}"],
        [
            f"`best`, which ships: {minutes:.0f} minutes on one {trained.hardware}",
            _lines(best),
            f"{scored.data['ratio']['value']:.2g}",
        ],
        [
            "[tetr-ai](https://github.com/misakamm/tetr-ai), not linear, by its own figure",
            in_words(TETR_AI),
            f"{TETR_AI / dt20['lines_per_game']:.2g}",
        ],
        ["`best` with `--lookahead`", f"{_lines(ahead)}, estimated", "-"],
    ]
    return markdown(["controller", "lines per game on 10x20 (95 % interval)", "times dt20"], rows)


def _lines(of: Mapping[str, Any]) -> str:
    """Return lines per game in words, with the 95 % interval."""
    low, high = of["ci95"]
    return f"{in_words(of['lines_per_game'])} ({in_words(low)} to {in_words(high)})"


def training() -> str:
    """Return what the default preset comes to over the seeds."""
    result = load(f"{_PROCESSOR}/training")
    runs = result.data["runs"]
    small, large = (
        [_on_board(run, LEARNED, board)["lines_per_game"] for run in runs] for board in ("10x10", "10x20")
    )
    seconds = [run["training_seconds"] for run in runs]
    reference = _on_board(runs[0], "dt20", "10x20")["lines_per_game"]
    words = (
        f"On {result.hardware} training takes {median(seconds):.0f} s (median of {len(runs)} seeds, slowest "
        f"{max(seconds):.0f} s). The learned controllers clear {format_lines(median(small))} lines per game "
        f"on 10x10 (median; all seeds {span(min(small), max(small))}) and an estimated "
        f"{format_lines(median(large))} on 10x20 (all seeds {span(min(large), max(large))}), "
        f"{median(large) / reference:.2g} times as many as dt20."
    )
    return with_provenance(words, result)


def first_run() -> str:
    """Return how long README's first command takes, on a processor and on a GPU."""
    results = load_all("first_run")
    slow, fast = (figures(results[at], "first_run.") for at in (0, -1))
    return (
        "Without a GPU install PyTorch's [CPU wheel](docs/install.md) first: otherwise pip fetches PyTorch "
        f"with CUDA, gigabytes of it. "
        f"Compiling and training take {slow['cold.seconds']:.0f} s on {results[0].hardware}, less with "
        f"AVX-512, and end with a controller {slow['times_dt20']:.2g} times as good as dt20, "
        f"the best published linear one; on one {results[-1].hardware} {fast['cold.seconds']:.0f} s, and "
        f"{fast['times_dt20']:.2g} times."
    )
