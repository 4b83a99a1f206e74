"""tetris/report/page.py: the page of a run holds what the run's files say, and nothing of a
network."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elements import Elements
from sample_runs import make_run

from tetris import LinearController
from tetris.report.data import dt20_score, recorded_game, weight_bars, with_distinct_names
from tetris.report.page import report_page
from tetris.training.run_folder import RunRecord, load_run
from tetris.view import replay_page
from tetris.view.play_page import play_page
from tetris.view.replay_page import player_page


def chart_data(page: str) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL
    )
    assert found is not None
    values: dict[str, Any] = json.loads(found[1])
    return values


def rows(page: str, label: str) -> list[list[str]]:
    """Return the cells of the table with a label, without markup."""
    found = re.search(rf'aria-label="{re.escape(label)}"><table>(.*?)</table>', page, re.DOTALL)
    assert found is not None, label
    return [
        [
            html.unescape(re.sub(r"<[^>]*>", "", cell))
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row)
        ]
        for row in found[1].split("</tr>")[:-1]
    ]


def scored(run: RunRecord, **changes: Any) -> LinearController:
    """Return the controller of a run with other settings in its scores."""
    scores = [{**score, **changes} for score in run.scores]
    provenance = {**run.controller.provenance, "score": scores}
    return replace(run.controller, provenance=provenance)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return load_run(make_run(tmp_path_factory.mktemp("runs") / "mine"))


def test_pages_are_whole_and_ask_nothing_of_a_network(run: RunRecord) -> None:
    for page in (report_page([run]), report_page([run, run])):
        elements = Elements(page)
        assert {str(link)[0] for link in elements.links} == {"#"}
        assert len(set(elements.ids)) == len(elements.ids)
        without_banner = page.replace("/*! https://github.com/leeoniya/uPlot", "", 1)
        assert not re.search(r"https?:|fetch\(|import\s|@import|url\(", without_banner)
        assert "prefers-color-scheme: dark" in page


def test_pages_link_to_the_project_once_it_has_an_address(
    run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replay_page.project_link() == ""
    monkeypatch.setattr(replay_page, "REPOSITORY", "https://example.com/cem")
    replay, play = player_page(recorded_game(run)), play_page(run.controller, run.recipe.rules)
    for page in (report_page([run]), replay, play):
        assert page.count('<a href="https://example.com/cem">cem-tetris</a>') == 1


def test_charts_hold_the_metrics(run: RunRecord) -> None:
    data = chart_data(report_page([run]))
    (values,) = data["runs"]
    assert (data["across"], values["name"]) == ("generation", "mine")
    assert values["stages"] == [
        {"board": "5x6", "place": 0, "dt20": None},
        {"board": "5x7", "place": 2, "dt20": None},
    ]
    assert values["score"] is None  # It is on 10x10, and no generation was.
    assert values["generation"] == [1, 2, 3]
    assert values["decisions"] == [5 * 2 * 20, 5 * 2 * 40, 5 * 2 * 70]
    for key in (
        "generation_best",
        "elite_mean",
        "elite_threshold",
        "learned_mean_fitness",
        "std_mean",
    ):
        assert values[key] == pytest.approx([record[key] for record in run.metrics], rel=1e-4)


def test_the_title_is_the_verdict_and_the_weights_stand_by_size(run: RunRecord) -> None:
    page = report_page([run])
    title = "4,748 lines per game on 10x10 (played, 95 % interval 4,464 - 5,055)"
    assert f"<h1>{title}</h1>" in page
    assert "running: generation" not in page
    bars = re.findall(r"<div><span>(\w+)</span>.*?<span>([+-][.\d]+)</span></div>", page)
    by_size = sorted(
        zip(run.weight_names, run.controller.weights, strict=True),
        key=lambda each: -abs(each[1]),
    )
    assert bars == [(name, f"{weight:+.3f}") for name, weight in by_size]


def test_a_run_that_goes_on_has_a_badge(run: RunRecord) -> None:
    first, second, _ = run.metrics
    part = replace(run, metrics=[first, {**second, "seconds": 100.0}])
    # One generation of 30 decisions is left, after one of 20.
    assert "running: generation 2 of 3, 0:02:30 left" in report_page([part], running=True)
    scored = replace(run, recipe=replace(run.recipe, score_decisions=10))
    assert "running: generation 3 of 3: scores are played" in report_page(
        [scored], running=True
    )
    # This run asks for no scores.
    assert "running: generation 3 of 3: pictures are drawn" in report_page([run], running=True)


def test_scores_stand_beside_published_ones_with_intervals_and_the_literature(
    run: RunRecord,
) -> None:
    header, *table = rows(report_page([run]), "Board 10x10, published rule, pieces uniform")
    assert (header[1:3], header[-1]) == (
        ["lines per game", "95 % interval"],
        "literature, about",
    )
    assert table == [
        ["learned", "4,748", "4,464 - 5,055", "1,009 games", "12,000,000", "–"],
        ["bcts", "3,813", "3,607 - 4,033", "1,256 games", "12,000,000", "3,800"],
        ["dt20", "-", "> 1.6 M", "0 games", "12,000,000", "4,300"],
    ]


def test_settings_and_versions_are_shown(run: RunRecord) -> None:
    page = report_page([run])
    settings = dict(rows(page, "Settings and versions")[1:])
    assert (settings["population"], settings["curriculum"]) == ("4", "5x6:2:20, 5x7:1:30")
    assert settings["version of torch"] == run.controller.provenance["versions"]["torch"]


def test_a_note_is_shown_with_its_tags(run: RunRecord) -> None:
    noted = replace(run, note="<i>wide</i> lanes #keep")
    shown = "&lt;i&gt;wide&lt;/i&gt; lanes <b>#keep</b></p>"
    assert f'<p class="note">{shown}' in report_page([noted])
    assert f'<p class="note">mine (2): {shown}' in report_page([run, noted])


def test_a_run_without_scores_says_so(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "bare", scored=False))
    assert "Not scored, as --score-decisions 0 asks." in report_page([run])
    later = replace(run, recipe=replace(run.recipe, score_decisions=10))
    assert "Not scored yet" in report_page([later])


def test_a_comparison_opens_with_the_best_run_and_the_curve_has_the_score(
    run: RunRecord,
) -> None:
    recipe = replace(run.recipe, board="10x10")
    score = {**run.scores[0], "board": "5x7", "lines_per_game": 9.0, "ci95": [8.0, 10.0]}
    better_score = {**run.scores[0], "lines_per_game": 9000.0}
    provenance = {**run.controller.provenance, "score": [better_score, score]}
    better_controller = replace(run.controller, provenance=provenance)
    worse = replace(run, name="a", recipe=recipe)
    better = replace(run, name="b", recipe=recipe, controller=better_controller)
    page = report_page([worse, better])
    assert "<h1>Best: b. Lines per game on 10x10: b 9,000, a 4,748</h1>" in page
    assert [values["score"] for values in chart_data(page)["runs"]] == [None, [9.0, 8.0, 10.0]]
    endless = {**better_score, "lines_per_game": None, "ci95": [401.0, None]}
    bounded = replace(run.controller, provenance={**provenance, "score": [endless]})
    short = replace(better, name="c", controller=bounded)
    title = "<h1>Lines per game on 10x10: a 4,748, c &gt; 401; another game: sz, two</h1>"
    sz = replace(better, name="sz", controller=scored(run, pieces="ZS"))
    two = replace(better, name="two", controller=scored(run, pieces_known=2))
    assert title in report_page([worse, short, sz, two])
    assert "<h1>Lines per game on 10x10: a 4,748; another" in report_page([worse, sz])


def test_a_comparison_says_what_differs_and_shows_equal_measurements_once(
    run: RunRecord, tmp_path: Path
) -> None:
    other = load_run(make_run(tmp_path / "mine", population=6, seed=4))
    page = report_page([run, other])
    names = ["mine (1)", "mine (2)"]
    assert [each["name"] for each in chart_data(page)["runs"]] == names
    assert rows(page, "What differs") == [
        ["setting", *names],
        ["population", "4", "6"],
        ["seed", "3", "4"],
    ]
    scores = rows(page, "Board 10x10, published rule, pieces uniform")
    assert [row[0] for row in scores[1:]] == [*names, "bcts", "dt20"]
    assert rows(page, "Learned weights")[0] == ["feature", *names]
    assert [row[2] for row in rows(page, "What the runs cost")[1:]] == ["3 of 3", "3 of 3"]
    assert page.count("<tetris-player>") == 2
    assert "differ only in the seed" not in page


def test_the_score_of_dt20_is_that_of_the_same_lookahead(run: RunRecord) -> None:
    scores = []
    for pieces_known in (1, 2):
        recipe = replace(run.recipe, pieces_known=pieces_known)
        scores.append(dt20_score(replace(run, recipe=recipe), "10x10"))
    assert scores == [pytest.approx(4000, rel=0.5), None]


def test_a_number_makes_no_name_that_another_run_has(run: RunRecord) -> None:
    runs = [run, replace(run, name="mine (1)"), run]
    names = ["mine (2)", "mine (1)", "mine (3)"]
    assert [each.name for each in with_distinct_names(runs)] == names


def test_scores_of_those_who_know_the_next_piece_stand_apart(run: RunRecord) -> None:
    known = replace(run, controller=scored(run, pieces_known=2))
    for runs in ([run, known], [known, run]):
        page = report_page(runs)
        label = "Board 10x10, published rule, pieces uniform"
        one, two = rows(page, label), rows(page, f"{label}, the next one known")
        assert [len(table) for table in (one, two)] == [4, 4]
        assert "literature, about" in one[0]
        assert "literature, about" not in two[0]


def test_estimates_stand_in_the_table_and_the_tile_of_their_board(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine", estimated=True))
    assert ["estimates" in score for score in run.scores] == [False] * 3 + [True] * 3
    page = report_page([run])
    assert (
        "<h1>364 M lines per game on 10x20" in page
    )  # the last board, as its own has no score
    header, *table = rows(page, "Board 10x20, published rule, pieces uniform")
    assert header[-3:-1] == ["from", "decisions"]
    assert [row[:3] for row in table] == [
        ["learned", "364 M", "346 M - 383 M"],
        ["bcts", "640 M", "> 204 M"],
        ["dt20", "-", "> 0"],
    ]
    assert [row[-3] for row in table] == ["16 estimates"] * 3
    assert "estimated; 95 %: 346 M - 383 M" in page
    assert "importance splitting estimates" in page
    assert "Board 10x10, published rule, pieces uniform" in page


@pytest.fixture
def timed(run: RunRecord) -> RunRecord:
    """A run of generations of 5, 1 and 2 seconds."""
    clock = [(5.0, 5.0, 10), (1.0, 6.5, 20), (2.0, 10.0, 40)]
    metrics = [
        {**record, "seconds": seconds, "elapsed_s": elapsed, "lines": lines}
        for record, (seconds, elapsed, lines) in zip(run.metrics, clock, strict=True)
    ]
    return replace(run, metrics=metrics)


def test_speeds_are_of_a_generation_in_the_chart_and_of_all_in_the_table(
    timed: RunRecord,
) -> None:
    page = report_page([timed])
    (values,) = chart_data(page)["runs"]
    assert values["speed"] == [200 / 5, 200, 300 / 2]
    assert values["seconds"] == [5.0, 6.5, 10.0]
    assert rows(page, "What the runs cost") == [
        [
            "run",
            "engine",
            "generations",
            "wall time [s]",
            "decisions",
            "decisions/s",
            "lines/s",
        ],
        ["mine", "python", "3 of 3", "10.0", "700", "70", "7"],
    ]
    assert "70 per second" in page


def test_bars_begin_in_the_middle_and_whiskers_are_a_standard_deviation_to_both_sides(
    run: RunRecord,
) -> None:
    metrics = [*run.metrics[:-1], {**run.metrics[-1], "std": [0.2, 0.1]}]
    controller = replace(run.controller, weights=(0.6, -0.8))
    first, second = weight_bars(replace(run, metrics=metrics, controller=controller))
    assert (first[:2], second[:2]) == (("max_height", "-0.800"), ("holes", "+0.600"))
    # 50 percent of the width are a weight of 0.8: left and width of the bar, then of the
    # whisker.
    assert first[2] == pytest.approx([0.0, 50.0, 50 - 62.5 * 0.9, 62.5 * 0.2])
    assert second[2] == pytest.approx([50.0, 37.5, 50 + 62.5 * 0.4, 62.5 * 0.4])
