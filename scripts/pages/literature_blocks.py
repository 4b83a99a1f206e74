"""Our figures beside the literature's: blocks of docs/results.md."""

from __future__ import annotations

import numpy as np
from measure.work import least_lines

from pages.result_files import load, load_all, with_provenance
from pages.wording import markdown, score
from tetris.evaluation.comparison import PUBLISHED_SCORES, PaperFigure
from tetris.record.numbers import format_lines

TETR_AI = 270e6
"""Lines per game on 10x20 of misakamm/tetr-ai 2.0 (2026), by its README: the mean of 200 games."""

LEARNED_SCORES = {
    ("bertsekas", "10x20"): PaperFigure(348_895, 348_895),  # Szita & Lőrincz 2006
    ("bcts", "10x20"): PaperFigure(31e6, 36e6),  # Thiery & Scherrer 2009
}
"""The papers' best scores of noisy cross-entropy searches by features and board."""

OTHER_SCORES = {
    "[tetr-ai](https://github.com/misakamm/tetr-ai) 2.0 (2026): hand-made features, weights by the "
    "cross-entropy method on 10x13": {"10x10": "7,520", "10x16": "4.81 M", "10x20": format_lines(TETR_AI)},
    "[PPO on bitboards](https://arxiv.org/abs/2603.26765) (2026), three minutes": {"10x10": "3,829"},
}
"""What others say of their controllers that are not linear, or that gradients learned, by board."""

NOISES = {"none": "no noise", "constant": "constant 4", "linear": "max(5 - t / 10, 0)"}
"""The noise schedules of the searches: how their name begins in a result, and how pages call them."""


def published() -> str:
    """Return the published controllers beside the papers' figures."""
    result = load("h200/published")
    found = {(each["controller"], each["board"]): score(each) for each in result.data["measurements"]}
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        cells = (
            [found[name, board], str(PUBLISHED_SCORES[name].get(board, "-"))] for board in ("10x10", "10x20")
        )
        rows.append([name, *(cell for pair in cells for cell in pair)])
    header = ["controller", "lines per game on 10x10", "papers, about", "on 10x20", "papers, about"]
    return with_provenance(markdown(header, rows), result)


def others() -> str:
    """Return what others say of controllers that are not linear, or that gradients learned."""
    boards = ("10x10", "10x16", "10x20")
    rows = [[label, *(known.get(board, "-") for board in boards)] for label, known in OTHER_SCORES.items()]
    return markdown(["lines per game", *boards], rows)


def noisy_ce() -> str:
    """Return what the noisy cross-entropy searches on 10x20 came to, beside the papers' best."""
    results, rows = load_all("noisy_ce_bertsekas_10x20") + load_all("noisy_ce_bcts_10x20"), []
    for result in results:
        plan, searches = result.data["plan"], result.data["searches"]
        for noise, label in NOISES.items():
            found = [each["score"] for each in searches if each["noise"].partition(":")[0] == noise]
            middle, best = np.median([*map(least_lines, found)]), score(max(found, key=least_lines))
            paper = str(LEARNED_SCORES[plan["features"], plan["board"]])
            rows.append([plan["features"], label, format_lines(middle), best, paper])
    header = [
        "features",
        "noise",
        "lines per game of the last mean, median",
        "best search",
        "paper's best, about",
    ]
    return with_provenance(markdown(header, rows), *results)
