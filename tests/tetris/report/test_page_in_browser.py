"""The page of a run under a finger and by keys, while its run goes on, and beside others."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest
from chromium import Page
from sample_runs import make_run

from tetris.report.page import runs_page, write_report
from tetris.report.server import ReportServer
from tetris.training.run_folder import RunFolder, load_run

pytestmark = pytest.mark.slow

READY = "document.querySelector('.plot')?.ariaValueText"
LONG = {"curriculum": "5x6:8:20,5x7:4:20"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "mine", **LONG)


def at(page: Page, chart: str, *shares: float) -> list[tuple[float, float]]:
    """Scroll to a chart and return the points at shares of its x-axis."""
    page.evaluate(
        f"document.querySelector('{chart} .plot').scrollIntoView({{block: 'center'}})"
    )
    # Touches go to what was last on the screen.
    frame = "requestAnimationFrame"
    page.evaluate(f"new Promise((done) => {frame}(() => {frame}(() => setTimeout(done, 100))))")
    box = page.evaluate(
        f"(() => {{ const plot = document.querySelector('{chart} .u-over');"
        " const box = plot.getBoundingClientRect();"
        " return [box.left, box.width, box.top + box.height / 2]; })()"
    )
    return [(box[0] + share * box[1], box[2]) for share in shares]


def described(page: Page, chart: str) -> str:
    return str(page.evaluate(f"document.querySelector('{chart} .plot').ariaValueText"))


def test_a_tap_reads_a_swipe_zooms_and_a_button_shows_all(
    run: Path, tmp_path: Path, browser_page: Page
) -> None:
    page = browser_page
    write_report(tmp_path / "page.html", [load_run(run)])
    page.resize(390, 800, dark=True)
    page.open(tmp_path / "page.html", READY)
    for chart in ("[data-chart=learning]", "[data-chart=spread]"):
        page.touch(*at(page, chart, 0.01))
        assert described(page, chart).startswith("generation 1 (")
    chart = "[data-chart=learning]"
    page.touch(*at(page, chart, 0.3, 0.35, 0.5, 0.7))
    assert described(page, chart).startswith("generation 8 (")  # the last one in sight
    assert described(page, "[data-chart=spread]").startswith("generation 8 (")
    whole = f"document.querySelector('{chart} .whole')"
    assert page.evaluate(f"{whole}.hidden") is False
    page.evaluate(f"{whole}.click()")
    assert described(page, chart).startswith("generation 12 (")
    assert page.evaluate(f"{whole}.hidden") is True


def test_the_values_are_a_csv_file_in_the_page(
    run: Path, tmp_path: Path, browser_page: Page
) -> None:
    write_report(tmp_path / "page.html", [load_run(run)])
    browser_page.open(tmp_path / "page.html", READY)
    kind, _, text = browser_page.evaluate(
        "document.querySelector('a[download]').href"
    ).partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    header, *rows = unquote(text).split("\r\n")[:-1]
    assert header.startswith("run,board,generation,decisions,seconds,generation_best")
    assert [row.split(",")[:3] for row in rows[:1]] == [['"mine"', "5x6", "1"]]
    assert len(rows) == 12


def test_seeds_are_compared_by_median_and_range(tmp_path: Path, browser_page: Page) -> None:
    runs = [
        load_run(make_run(tmp_path / f"seed{seed}", **LONG, seed=seed)) for seed in (1, 2, 3)
    ]
    write_report(tmp_path / "page.html", runs)
    page = browser_page
    page.open(tmp_path / "page.html", READY)
    chart = "[data-chart=curves]"
    values = sorted(each.metrics[-1]["elite_mean"] for each in runs)
    low, median, high = (f"{float(f'{value:.4g}'):g}" for value in values)
    assert described(page, chart).split("\n")[1] == (
        f"seed1 and 2 more: {median} ({low} – {high})"
    )
    assert len(described(page, chart).split("\n")) == 1 + 1
    page.evaluate("document.querySelector('[name=bands]').click()")
    assert len(described(page, chart).split("\n")) == 1 + 3


def test_the_list_of_runs_is_sorted_by_numbers(tmp_path: Path, browser_page: Page) -> None:
    (tmp_path / "runs").mkdir()
    for name, seconds, lines in (("a", 9e4, 98.0), ("b", 7e4, 4e6), ("c", 5.0, 4748.0)):
        run = RunFolder(make_run(tmp_path / "runs" / name))
        *_, last = run.metrics.read_text().splitlines()
        metrics = {**json.loads(last), "generation": 4, "elapsed_s": seconds}
        run.metrics.write_text(run.metrics.read_text() + json.dumps(metrics) + "\n")
        controller = json.loads(run.controller.read_text())
        controller["provenance"]["score"][0]["lines_per_game"] = lines
        run.controller.write_text(json.dumps(controller))
    (tmp_path / "runs.html").write_text(runs_page(tmp_path / "runs"), "utf-8")
    browser_page.open(tmp_path / "runs.html")
    for column, names in (("took", "cba"), ("score", "acb")):
        shown = browser_page.evaluate(
            f"document.querySelector('[aria-label=\"sort by {column}\"]').click(), "
            "[...document.querySelectorAll('tbody a')].map((run) => run.textContent).join('')"
        )
        assert shown == names


@pytest.mark.parametrize("across", ["generation", "seconds"])
def test_where_a_shorter_run_has_no_value_the_end_of_its_curve_is_described(
    tmp_path: Path, browser_page: Page, across: str
) -> None:
    settings = {"population": 6, "curriculum": "5x6:3:200"}
    runs = [make_run(tmp_path / "long", **LONG), make_run(tmp_path / "short", **settings)]
    write_report(tmp_path / "page.html", [load_run(run) for run in runs])
    page = browser_page
    page.open(tmp_path / "page.html", READY)
    page.evaluate(f"document.querySelector('input[value={across}]').click()")
    ends = "JSON.parse(document.getElementById('report-data').textContent).runs.map"
    curves = page.evaluate(f"{ends}((run) => [run['{across}'][0], run['{across}'].at(-1)])")
    for chart in ("curves", "spread", "speed"):
        page.evaluate(f"document.querySelector('[data-chart={chart}] .plot').focus()")
        for key, place, which in (("End", 1, "last"), ("Home", 0, "first")):
            page.press(key)
            lines = described(page, f"[data-chart={chart}]").split("\n")[1:]
            outer = (max if place else min)(curve[place] for curve in curves)
            for line, curve in zip(lines, curves, strict=True):
                assert (f": {which} value at " in line) == (curve[place] != outer), (
                    line,
                    curves,
                )
                assert (" on 5x" in line) == (curve[place] == outer)


def test_a_page_follows_its_run_and_stays_where_the_reader_is(
    run: Path, browser_page: Page
) -> None:
    page = browser_page
    server = ReportServer([run])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with RunFolder(run).claimed(None), server:  # as while it is trained
        page.open(server.url, READY)
        chart = "[data-chart=learning]"
        page.evaluate("document.querySelector('input[value=decisions]').click()")
        page.touch(*at(page, chart, 0.0, 0.1, 0.5))
        zoomed = described(page, chart)
        page.evaluate("document.querySelector('#configuration details').open = true")
        page.evaluate("document.querySelector('#throughput').scrollIntoView()")
        game = "document.querySelector('tetris-player')"
        page.wait_for(f"{game}.playing")
        page.evaluate(f"{game}.seek(30)")
        metrics = run / "metrics.jsonl"
        *_, last = metrics.read_text().splitlines()
        with metrics.open("a") as file:
            file.write(json.dumps({**json.loads(last), "generation": 13}) + "\n")
        page.wait_for("document.querySelector('.tiles').textContent.includes('13 of 12')")
        assert described(page, chart) == zoomed
        assert page.evaluate("document.querySelector('input[value=decisions]').checked")
        assert page.evaluate("document.querySelector('#configuration details').open")
        assert "13 of 12" in page.evaluate("document.querySelector('.badge').textContent")
        assert page.evaluate(f"[{game}.playing, {game}.games?.state.index]") == [False, 30]
        assert (
            abs(
                page.evaluate(
                    "document.querySelector('#throughput').getBoundingClientRect().top"
                )
            )
            < 2
        )
        server.shutdown()
        server.server_close()
        page.wait_for("document.querySelector('.badge').textContent.includes('not answer')")
    page.problems[:] = [each for each in page.problems if server.url not in each]


def test_a_comparison_that_follows_its_runs_keeps_the_game_of_each(
    tmp_path: Path, browser_page: Page
) -> None:
    runs = [make_run(tmp_path / name) for name in "abc"]
    page, server = browser_page, ReportServer(runs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with server:
        page.open(server.url, READY)
        RunFolder(runs[0]).note.write_text("seen")
        page.wait_for("document.querySelector('.note')")
        names = page.evaluate(
            "[...document.querySelectorAll('#game > *')].slice(1).map((game) => "
            "JSON.parse(game.querySelector('script').textContent).title).join('')"
        )
        assert names == "abc"
        server.shutdown()
    page.problems[:] = [each for each in page.problems if server.url not in each]


def test_a_part_in_seconds_is_not_shown_in_minutes(tmp_path: Path, browser_page: Page) -> None:
    run = make_run(tmp_path / "mine", **LONG)
    page, server = browser_page, ReportServer([run])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with server:
        page.open(server.url, READY)
        page.evaluate("document.querySelector('input[value=seconds]').click()")
        page.evaluate("document.querySelector('.plot').focus()")
        for key in ("ArrowLeft", "ArrowLeft", "+"):
            page.press(key)
        whole = "document.querySelector('.whole').hidden"
        assert not page.evaluate(whole)
        metrics = run / "metrics.jsonl"
        *_, last = metrics.read_text().splitlines()
        later = json.dumps({**json.loads(last), "generation": 13, "elapsed_s": 900.0})
        metrics.write_text(metrics.read_text() + later + "\n")
        page.wait_for("document.querySelector('.tiles').textContent.includes('13 of 12')")
        assert page.evaluate(whole)
        assert "900 s" in described(page, "[data-chart=learning]")
        server.shutdown()
    page.problems[:] = [each for each in page.problems if server.url not in each]
