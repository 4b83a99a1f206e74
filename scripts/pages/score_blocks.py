"""How good the learned controllers are, that of the record too, and how long training takes: blocks."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from pages.result_files import figures, load, load_all, with_provenance
from pages.wording import count, markdown, ratio, score, span
from tetris.record.numbers import counted, format_lines

_PROCESSOR, _GPU = "epyc-2core", "h200"


def _on_board(run: Mapping[str, Any], controller: str, board: str) -> Mapping[str, Any]:
    """Return a controller's score on a board: the estimate where there is one in which games ended."""
    estimates = (x for x in run.get("estimates", ()) if x["lines_per_game"] is not None)
    of = controller, board
    return next(x for x in (*estimates, *run["score"]) if (x["controller"], x["board"]) == of)


def scores() -> str:
    """Return the learned controller of the median run beside the published ones."""
    result = load(f"{_PROCESSOR}/training")
    runs = result.data["runs"]
    run = sorted(runs, key=lambda x: _on_board(x, "learned", "10x20")["lines_per_game"])[len(runs) // 2]
    labels = {"learned": f"**learned** ({len(run['weights'])} features)", "bcts": "bcts", "dt20": "dt20"}
    rows = []
    for name, label in labels.items():
        low, high = (_on_board(run, name, board) for board in ("10x10", "10x20"))
        rows.append([label, score(low), f"{score(high)}{', estimated' if 'estimates' in high else ''}"])
    sources = [load(f"{_GPU}/published")] if "measured" in high else []
    table = markdown(["controller", "lines per game on 10x10", "on 10x20"], rows)
    return with_provenance(table, result, *sources)


def training() -> str:
    """Return what the default preset comes to over the seeds, on a processor."""
    result = load(f"{_PROCESSOR}/training")
    runs = result.data["runs"]
    small, large = (
        [_on_board(run, "learned", board)["lines_per_game"] for run in runs] for board in ("10x10", "10x20")
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
    """Return how long README's first command takes, on every machine where it was measured."""
    words = []
    for result in (results := load_all("first_run")):
        of = figures(result, "first_run.")
        words.append(
            f"the training takes {of['cold.seconds']:.0f} s on {result.hardware} "
            f"({of['warm.seconds']:.0f} s once everything is compiled) and ends at "
            f"{of['times_dt20']:.2g} times dt20"
        )
        if "install.seconds" in of:
            pip = f"{of['install.seconds']:.0f} s and {of['install.gigabytes']:.1f} GB of disk"
            words[-1] = f"Of the first command pip takes {pip}, for PyTorch with CUDA; {words[-1]}"
    return with_provenance(f"{'. On a GPU '.join(words)}. Processors differ by a factor of two.", *results)


def record_claim() -> str:
    """Return in a sentence what the controller that ships can do."""
    trained, scored = load(f"{_GPU}/record_training"), load(f"{_GPU}/record_score")
    best, reference = scored.data["score"]
    words = (
        "The controller that ships as `best`, learned from nothing in "
        f"{trained.figures['record.training_seconds'] / 60:.0f} minutes on one {trained.hardware}, clears "
        f"{score(best)} lines per game on 10x20, played. dt20 clears {score(reference)} in the "
        f"same run: `best` is {ratio(scored.data['ratio'])} times as good."
    )
    return with_provenance(words, scored)


def lookahead_claim() -> str:
    """Return in a sentence what looking ahead is worth to the controller that ships."""
    results, other = load_all("lookahead"), load("h100/next_piece")
    (played,) = (x for each in results for x in each.data["measurements"] if x["controller"] == "best.ahead")
    of = ("controller", "board", "lookahead")
    wanted = ("best", "10x20", True)
    (estimated,) = (x for x in other.data["estimates"] if tuple(x[name] for name in of) == wanted)
    words = (
        "With `--lookahead` it thinks of the seven pieces that may come next, which the published "
        f"controllers do not, and clears {score(played)} lines per game, played: "
        f"{counted(played['games'], 'game')} ended in {count(played['decisions'])} decisions. "
        f"Importance splitting estimates {score(estimated)}."
    )
    return with_provenance(words, *results, other)
