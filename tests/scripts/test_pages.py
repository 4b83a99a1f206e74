"""README and docs say what the result files say, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages.wording import count, digits, score, span

pytest.importorskip("cogapp", reason='needs cog: pip install -e ".[dev]"')
from pages import pictures, render

ROOT = Path(__file__).parents[2]


def test_the_pages_say_what_the_result_files_say() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        assert render.rendered(page) == page.read_text(), f"{page.name}: run python scripts/pages/render.py"


def test_a_page_that_differs_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(render, "draw_pictures", lambda folder: None)
    pages = {
        tmp_path / "README.md": "(benchmarks/results/",
        tmp_path / "docs" / "a.md": "(../benchmarks/results/",
    }
    (tmp_path / "docs").mkdir()
    for page in pages:
        page.write_text("<!-- [[[cog cog.outl(equality()) ]]] -->\nold\n<!-- [[[end]]] -->\n")
    for words, status in ((["--check"], 1), ([], 0), (["--check"], 0)):
        monkeypatch.setattr("sys.argv", ["render.py", *words])
        assert render.main() == status
    assert "README.md differs from the result files" in capsys.readouterr().err
    for page, link in pages.items():  # they lead from the page to the root
        assert "old" not in page.read_text()
        assert link in page.read_text()


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures.draw_pictures(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"sampling.png", "noisy_ce_10x10.png", "noisy_ce_10x20.png"}


def test_numbers_are_written_for_people() -> None:
    assert [count(x) for x in (3670.4, 8.771e6, 999_999, 3.16e9)] == ["3,670", "8.77 M", "1 M", "3.16 G"]
    assert [digits(x) for x in (1.2345, 99.95, 1234.5)] == ["1.23", "100", "1,234"]
    assert span(953e6, 1540e6) == "953-1,540 M"
    assert score({"lines_per_game": None, "ci95": [1000.0, None]}) == "> 1,000"


def test_the_index_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "index.md").read_text())) == pages


def test_links_lead_somewhere() -> None:
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/notes/*.md")]:
        for target in re.findall(r"\]\(([\w./-]+)\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"
