"""Scores of published controllers: how long is played, and what the papers say of them."""

from __future__ import annotations

import pytest
from measure import reproduce
from measure.reproduce import BOARDS, CPU_PRECISION, GPU_PRECISION, decisions_for, measure_published

from tetris import Score
from tetris.controller import PUBLISHED
from tetris.evaluation.papers import PUBLISHED_SCORES, PaperFigure

BOTH = [(board, share) for precision in (CPU_PRECISION, GPU_PRECISION) for board, share in precision.items()]


def test_every_published_controller_has_a_figure_on_the_standard_board() -> None:
    assert set(PUBLISHED_SCORES) == set(PUBLISHED)
    assert all("10x20" in scores for scores in PUBLISHED_SCORES.values())
    assert {board for scores in PUBLISHED_SCORES.values() for board in scores} == set(BOARDS)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(4300, 4300, "4,300"), (5.2e6, 5.2e6, "5.2 M"), (31e6, 36e6, "31-36 M"), (348_895, 348_895, "348,895")],
)
def test_figures_of_papers_are_written_for_people(low: float, high: float, text: str) -> None:
    assert str(PaperFigure(low, high, "")) == text


@pytest.mark.parametrize("controller", PUBLISHED)
@pytest.mark.parametrize(("board", "precision"), BOTH)
@pytest.mark.parametrize("better", [1.0, 8 / 7])
def test_the_interval_is_as_narrow_as_asked_for(
    controller: str, board: str, precision: float, better: float
) -> None:
    paper = PUBLISHED_SCORES[controller].get(board)
    mean = better * (4000.0 if paper is None else paper.middle)
    lines = 0.4 * decisions_for(controller, board, precision)
    # The number of games is Poisson; three sigma below its mean, one time in 700, it still has to do.
    games = round(lines / mean - 3 * (lines / mean) ** 0.5)
    score = Score(round(lines), games, round(lines / 0.4))
    (low, high), found = score.ci95, score.lines_per_game
    assert found is not None
    assert high is not None
    assert found - low <= precision * found
    assert high - found <= precision * found


def test_every_controller_is_measured_on_both_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "decisions_for", lambda controller, board, precision: 64_000)
    measured = measure_published("cpu", {"10x10": 0.03}, 0.01)
    assert [(each["board"], each["controller"]) for each in measured] == [
        (board, name) for board in BOARDS for name in PUBLISHED
    ]
    assert {each["decisions"] for each in measured if each["board"] == "10x10"} == {64_000}
    assert {each["rule"] for each in measured} == {"published"}
    bcts = next(each for each in measured if (each["controller"], each["board"]) == ("bcts", "10x10"))
    # Some fifteen games; outside a factor of 4 of the paper's with a probability below 1e-6.
    assert 3800 / 4 < bcts["lines_per_game"] < 4 * 3800
