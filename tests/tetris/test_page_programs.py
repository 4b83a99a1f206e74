"""The programs of docs that no other test runs; every page with programs has a test that runs
them."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from kernels import CompilerMissingError
from tetris import play_game, published, training
from tetris.play.controller import LinearController

DOCS = Path(__file__).parents[2] / "docs"
RUN_ELSEWHERE = {
    "cluster.md": "cem/test_engines.py",
    "examples.md": "test_programs_of_pages.py",
    "gymnasium.md": "tetris/test_gymnasium_page.py",
    "index.md": "test_programs_of_pages.py",
    "optimiser.md": "test_programs_of_pages.py",
    "planner.md": "test_programs_of_pages.py",
    "policies.md": "test_programs_of_pages.py",
    "rare_events.md": "test_programs_of_pages.py",
    "scores.md": "test_programs_of_pages.py",
    "spaces.md": "test_programs_of_pages.py",
    "world_models.md": "test_programs_of_pages.py",
    "writing_a_kernel.md": "kernels/test_writing_a_kernel.py",
}
RUN_HERE = {"features.md", "training.md", "watching.md"}


def blocks(page: str, language: str = "python") -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )


def run(page: str, number: int = 0, **names: Any) -> dict[str, Any]:
    """Run a program of a page; returns its variables."""
    program = blocks(page)[number]
    names["__name__"] = "program"
    exec(compile(program, DOCS / page, "exec"), names)
    return names


def test_every_page_with_programs_is_run() -> None:
    assert {
        page.name for page in DOCS.glob("*.md") if blocks(page.name)
    } == RUN_HERE | RUN_ELSEWHERE.keys()
    assert all(
        page in (DOCS.parent / "tests" / test).read_text()
        for page, test in RUN_ELSEWHERE.items()
    )


def test_a_board_of_ones_own_is_explained_and_played() -> None:
    names = run("watching.md", 1)
    assert names["table"].features.shape == (34, 52)
    assert len(names["game"].steps) == 5


@pytest.mark.usefixtures("own_features_forgotten")
def test_the_feature_of_ones_own_plays_and_is_that_of_the_header(
    header: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("features.md")
    assert "PlayedGame of" in capsys.readouterr().out
    (shown,) = (block for block in blocks("features.md", "cpp") if "TETRIS_FEATURE" in block)
    assert shown.removeprefix("// mine.h\n") in header.read_text()


def test_a_page_holds_the_player_of_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    play_game(published("dt20"), seed=1, most_pieces=30).replay().save("game.json")
    run("watching.md")
    assert "After training" in (tmp_path / "report.html").read_text()


def test_a_controller_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small board for a few generations: the whole preset takes minutes."""
    monkeypatch.chdir(tmp_path)
    small = {
        "population": 8,
        "streams": 4,
        "features": "dt",
        "curriculum": "6x6:3:50",
        "board": "6x6",
    }
    monkeypatch.setattr(training, "train", functools.partial(training.train, **small))
    try:
        controller = run("training.md")["controller"]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    assert LinearController.load(tmp_path / "runs" / "a").weights == controller.weights
