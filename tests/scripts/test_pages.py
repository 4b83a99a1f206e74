"""README and docs say what the result files say, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pages.wording import count, digits, in_words, score, span

pytest.importorskip("cogapp", reason='needs cog: pip install -e ".[test]"')
from pages import address_blocks, optimiser_blocks, render
from pages.pictures import PICTURES
from pages.score_blocks import median_run

ROOT = Path(__file__).parents[2]


def test_the_pages_say_what_the_result_files_say() -> None:
    for page, text in render.page_texts().items():
        assert text == page.read_text(), f"{page.name}: run python scripts/pages/render.py"


def test_the_notebook_has_no_line_that_fills_a_screen() -> None:
    text = render.NOTEBOOK.read_text()
    assert render.with_short_lines(text) == text, "run python scripts/pages/render.py"
    assert max(map(len, text.splitlines())) < 300


def test_pages_name_a_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "https" not in address_blocks.clone()
    assert address_blocks.badge() == ""
    monkeypatch.setattr(address_blocks, "REPOSITORY", "https://github.com/us/cem")
    assert "https://github.com/us/cem/issues" in address_blocks.clone()
    notebook = render.with_short_lines(render.NOTEBOOK.read_text())
    assert "google.com/github/us/cem/blob/main/docs/tetris.ipynb)\\n" in notebook


@pytest.mark.parametrize(
    "name", ["sampling.png", "learning_curve.png", "choices.png", "route.png"]
)
def test_a_picture_is_drawn(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    PICTURES[name](tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_numbers_are_written_for_people() -> None:
    assert [count(x) for x in (3670.4, 8.771e6, 999_999, 3.16e9)] == [
        "3,670",
        "8.77 M",
        "1 M",
        "3.16 G",
    ]
    assert [digits(x) for x in (1.2345, 99.95, 1234.5)] == ["1.23", "100", "1,234"]
    assert [in_words(x) for x in (51e6, 1.3793e9)] == ["51 million", "1.38 billion"]
    assert span(953e6, 1540e6) == "953-1,540 M"
    assert score({"lines_per_game": None, "ci95": [1000.0, None]}) == "> 1,000"


def test_a_column_has_the_best_search_of_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "bbob": {"bbob.cem.d5.20.solved": 0.5, "bbob.slsqp.d5.20.solved": 0.2},
        "bbob-later": {"bbob.bfgs.d5.20.solved": 0.3, "bbob.pycma.d5.20.solved": 0.4},
    }
    monkeypatch.setattr(
        optimiser_blocks, "load_all", lambda name: [SimpleNamespace(figures=files[name])]
    )
    assert optimiser_blocks.find_shares("bbob", "d5.20") == ["50%", "30%", "40%"]


def test_the_middle_of_runs_is_the_median_on_10x20() -> None:
    def run(lines: float) -> dict[str, Any]:
        boards = {"10x10": -lines, "10x20": lines}
        scores = [
            {"controller": "learned", "board": on, "lines_per_game": x}
            for on, x in boards.items()
        ]
        return {"score": scores}

    runs = [run(lines) for lines in (3.0, 1.0, 5.0, 2.0, 4.0)]
    assert median_run(runs) == run(3.0)


def test_the_index_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert (
        set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "index.md").read_text())) == pages
    )


def test_links_lead_somewhere() -> None:
    for file in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("benchmarks/notes/*.md"),
    ]:
        for target in re.findall(r"\]\(([\w./-]+)\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_every_table_has_a_header_and_rows_as_wide_as_it() -> None:
    for file in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("benchmarks/notes/*.md"),
    ]:
        text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            rows = [re.sub(r"`[^`]*`", "", row).count("|") for row in table.splitlines()]
            assert re.match(r".*\n\|[ |:-]+\n", table), f"{file.name}: no header: {table}"
            assert len(set(rows)) == 1, f"{file.name}: {table}"
