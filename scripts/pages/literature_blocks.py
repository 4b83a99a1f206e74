"""Blocks of docs/results.md: our results beside those of the literature."""

from statistics import median

from measure.work import least_lines

from pages.result_files import load, load_all, with_provenance
from pages.wording import markdown, score
from tetris.evaluation.comparison import PUBLISHED_SCORES, paper_text
from tetris.record.numbers import format_lines

TETR_AI = 270e6
"""Lines per game on 10x20 of misakamm/tetr-ai 2.0 (2026), from its README: 200 games."""

LEARNED_SCORES = {
    ("bertsekas", "10x20"): (348_895, 348_895),  # Szita & Lőrincz 2006
    ("bcts", "10x20"): (31e6, 36e6),  # Thiery & Scherrer 2009
}
"""The papers' best scores of noisy cross-entropy searches, by features and board."""

OTHER_SCORES = {
    """[tetr-ai](https://github.com/misakamm/tetr-ai) 2.0 (2026): \
hand-made features, weights by the cross-entropy method on 10x13""": {
        "10x10": "7,520",
        "10x16": "4.81 M",
        "10x20": format_lines(TETR_AI),
    },
    "[PPO on bitboards](https://arxiv.org/abs/2603.26765) (2026), three minutes": {
        "10x10": "3,829"
    },
}
"""Scores from the literature for controllers that are not linear or use gradients."""

NOISES = {"none": "no noise", "constant": "constant 4", "linear": "max(5 - t / 10, 0)"}
"""The noise schedules' names in pages, by the beginning of their name in result files."""


_JASKOWSKI = "Jaskowski et al. (2015)"
SZ_PLAYERS = (
    ("hand-made", "Szita & Szepesvari (2010)", "183.0", "hand_made"),
    ("Bertsekas' features, cross-entropy method", _JASKOWSKI, "146.2", "bertsekas"),
    ("Bertsekas' features, CMA-ES", _JASKOWSKI, "180.1", ""),
    ("3x3 n-tuples, temporal differences", _JASKOWSKI, "219.4", ""),
    ("3x3 n-tuples, VD-CMA-ES, 100 million games", _JASKOWSKI, "230.2", ""),
    ("a network of value estimates", "Elfwing et al. (2018)", "263", ""),
    ("4x4 n-tuples, four million weights", _JASKOWSKI, "294.8", ""),
    ("`sz`: `dt_step_pairs`, cross-entropy method", "here", "-", "sz"),
)
"""Players of SZ-Tetris: (player, source, the source's lines per game, our figure's name)."""


def sz_players() -> str:
    """Return a Markdown table of players of SZ-Tetris: the scores of the papers, and ours.

    Players that were not measured here have a dash in place of our score.
    """
    result = load_all("sz")[-1]  # The latest one.
    rows = []
    for player, source, paper_score, name in SZ_PLAYERS:
        figure = f"sz.{name}.lines_per_game"
        own_score = "-"
        if figure in result.figures:
            low, high = result.data["ranges"][figure]
            own_score = f"{result.figures[figure]:.1f} ({low:.1f}-{high:.1f})"
        rows.append([player, source, paper_score, own_score])
    header = ["player", "source", "its lines per game", "played here"]
    return with_provenance(markdown(header, rows), result)


def sz_lanes() -> str:
    """Return a Markdown table of the lanes (pairs of columns) of the controller sz.

    A row has the shares of boards on which each lane is ready for a piece.
    """
    result = load_all("sz")[-1]
    lanes = result.data["scores"]["sz"]["lanes"]
    rows = [
        [f"ready for {piece}", *(f"{lane_shares[index]:.0%}" for lane_shares in lanes)]
        for index, piece in enumerate("SZ")
    ]
    header = ["columns", *(f"{left} and {left + 1}" for left in range(0, 10, 2))]
    return markdown(header, rows)


def published() -> str:
    """Return a Markdown table of published controllers: our scores, and those of the papers.

    A row is a controller. Each board has two columns of lines per game: measured by us, and
    published in the paper.
    """
    result = load("h200/published")
    rows: dict[str, list[str]] = {}  # The row of each controller.
    # In the file the measurements on 10x10 come first. So a row gets the two cells of 10x10
    # before those of 10x20, in the order of the header.
    for measurement in result.data["measurements"]:
        name = measurement["controller"]
        paper_score = PUBLISHED_SCORES[name].get(measurement["board"])
        row = rows.setdefault(name, [name])
        row += [score(measurement), paper_text(*paper_score) if paper_score else "-"]
    header = [
        "controller",
        "lines per game on 10x10",
        "papers, about",
        "on 10x20",
        "papers, about",
    ]
    return with_provenance(markdown(header, rows.values()), result)


def others() -> str:
    """Return a Markdown table of the scores in `OTHER_SCORES`."""
    boards = ("10x10", "10x16", "10x20")
    rows = []
    for label, figures in OTHER_SCORES.items():
        rows.append([label, *(figures.get(board, "-") for board in boards)])
    return markdown(["lines per game", *boards], rows)


def noisy_ce() -> str:
    """Return a Markdown table of noisy cross-entropy searches, and the papers' best scores.

    A row combines a feature set and a noise schedule. It has the median and the best score of
    the searches with this combination, which differ only in their seeds.
    """
    results = load_all("noisy_ce_bertsekas_10x20") + load_all("noisy_ce_bcts_10x20")
    rows = []
    for result in results:
        features = result.data["plan"]["features"]
        paper_score = paper_text(*LEARNED_SCORES[features, result.data["plan"]["board"]])
        for noise, label in NOISES.items():
            scores = []
            for search in result.data["searches"]:
                # `noise` is the name of a schedule: "constant" for "constant:4.0".
                if search["noise"].startswith(noise):
                    scores.append(search["score"])
            # `least_lines` returns the lines per game, or a lower bound if no game ended.
            median_lines = median(map(least_lines, scores))
            best = max(scores, key=least_lines)
            rows.append([features, label, format_lines(median_lines), score(best), paper_score])
    header = [
        "features",
        "noise",
        "lines per game of the last mean, median",
        "best search",
        "paper's best, about",
    ]
    return with_provenance(markdown(header, rows), *results)
