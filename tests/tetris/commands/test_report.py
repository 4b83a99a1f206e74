"""scripts/report_tetris.py: what it writes, its errors, and how its pages behave in a
browser."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from sample_runs import make_run

from tetris.report.server import ReportServer

Script = Callable[..., Any]
READY = (
    "document.querySelector('tetris-player')?.board && "
    "document.querySelector('.plot')?.ariaValueText"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "mine"))


def test_report_of_a_run_lies_in_its_folder_and_is_the_same_each_time(
    script: Script, folder: Path
) -> None:
    pages = []
    for _ in range(2):
        ended = script("report_tetris", folder)
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.startswith(f"{folder / 'report.html'}: ")
        pages.append((folder / "report.html").read_bytes())
    assert pages[0] == pages[1]


def test_a_port_in_use_is_one_line_with_the_option(script: Script, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = script("report_tetris", folder, "--serve", "--port", port)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(
        f"report_tetris.py: error: --port {port}: Address already in use"
    )


def test_an_error_without_a_port_names_no_port(
    script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ReportServer, "server_bind", fail)
    ended = script("report_tetris", folder, "--serve")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "report_tetris.py: error: --serve: Too many open files\n"


def test_several_runs_make_a_comparison(
    script: Script, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script("report_tetris", folder, folder).status == 0
    assert "2 training runs" in (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert '"across":"decisions"' in (tmp_path / "comparison.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "begin", "count"), [("a.png", b"\x89PNG", 1), ("a.pdf", b"%PDF", 2)]
)
def test_a_plot_is_a_picture_of_the_kind_that_its_name_says(
    script: Script, folder: Path, tmp_path: Path, name: str, begin: bytes, count: int
) -> None:
    pytest.importorskip("matplotlib")
    out = ("--out", tmp_path / "page.html", "--plot", tmp_path / name)
    ended = script("report_tetris", *[folder] * count, *out)
    assert (ended.status, ended.err) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_a_plot_names_its_axes_with_units_and_its_stages(
    script: Script, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # text as text
    script("report_tetris", folder, "--plot", tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for text in ("generation", "lines per game (in training, log scale)", "5x6", "5x7"):
        assert f">{text}</text>" in drawn
    for text in ("best candidate", "mean of the elites", "learned mean", "elites, from worst"):
        assert f">{text}" in drawn


def test_report_lives_in_a_browser(script: Script, folder: Path, browser_page: Page) -> None:
    script("report_tetris", folder)
    page = browser_page
    page.open(folder / "report.html", READY)
    assert page.evaluate("document.querySelectorAll('figure .plot canvas').length") == 3
    page.evaluate("document.querySelector('[data-chart=learning] .plot').focus()")
    value_text = "document.querySelector('[data-chart=learning] .plot').ariaValueText"
    assert page.evaluate(value_text).startswith("generation 3 (5x7), 700 decisions")
    page.press("ArrowLeft")
    assert page.evaluate(value_text).startswith("generation 2 (5x6), 400 decisions")
    page.evaluate("document.querySelector('input[value=decisions]').click()")
    assert page.evaluate(value_text.replace("learning", "spread")).startswith(
        "generation 3 (5x7), 700"
    )


def test_player_of_a_report_plays_pauses_and_scrubs(
    script: Script, folder: Path, browser_page: Page
) -> None:
    script("report_tetris", folder)
    page = browser_page
    page.open(folder / "report.html", READY)
    player = "document.querySelector('tetris-player').shadowRoot"
    pieces = f"Number({player}.querySelector('.pieces').textContent)"
    assert page.evaluate(pieces) == 1
    page.evaluate("document.querySelector('tetris-player').focus()")
    page.press("ArrowUp")  # faster
    page.press(" ")
    page.wait_for(f"{pieces} > 5")
    page.press(" ")
    paused = page.evaluate(pieces)
    page.press("ArrowRight")
    assert page.evaluate(pieces) == paused + 1
    page.press("Home")
    assert page.evaluate(pieces) == 1
    page.evaluate(
        f"{{ const scrub = {player}.querySelector('.position'); scrub.value = 200;"
        " scrub.dispatchEvent(new Event('input')); }"
    )
    assert page.evaluate(pieces) == 200


def test_pages_fit_a_phone_and_follow_the_colours_asked_for(
    script: Script, folder: Path, tmp_path: Path, browser_page: Page
) -> None:
    script("report_tetris", folder)
    script("report_tetris", folder, folder, "--out", tmp_path / "both.html")
    for file in (folder / "report.html", tmp_path / "both.html"):
        browser_page.open(file, READY)
        colours = []
        for dark in (False, True):
            browser_page.resize(390, 800, dark=dark)
            colours.append(
                browser_page.evaluate("getComputedStyle(document.body).backgroundColor")
            )
        assert colours == ["rgb(255, 255, 255)", "rgb(22, 24, 29)"]
        assert browser_page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_comparison_lives_in_a_browser(
    script: Script, folder: Path, tmp_path: Path, browser_page: Page
) -> None:
    other = make_run(tmp_path / "other", seed=9)
    script("report_tetris", folder, other, "--out", tmp_path / "both.html")
    page = browser_page
    page.open(tmp_path / "both.html", READY)
    picture = "document.querySelector('[data-chart=curves] canvas').toDataURL()"
    drawn = page.evaluate(picture)
    markers = "[...document.querySelectorAll('[data-chart=curves] .u-marker')]"
    assert (
        len(set(page.evaluate(f"{markers}.slice(1).map((marker) => marker.style.background)")))
        == 2
    )
    page.evaluate(
        "{ const curve = document.querySelector('select[name=curve]');"
        " curve.value = 'generation_best'; curve.dispatchEvent(new Event('change')); }"
    )
    assert page.evaluate(picture) != drawn
    value_text = "document.querySelector('[data-chart=curves] .plot').ariaValueText"
    first, *lines = page.evaluate(value_text).split("\n")
    assert first == "decisions 700"
    assert [line.split(":")[0] for line in lines] == ["mine", "other"]
