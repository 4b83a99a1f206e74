"""README and docs say what the result files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import pictures, result_files
from pages.score_blocks import median_run

pytest.importorskip("cogapp", reason='needs cog: pip install -e ".[dev]"')
from pages import render

ROOT = Path(__file__).parents[3]


def test_the_pages_say_what_the_result_files_say() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        assert render.rendered(page) == page.read_text(), f"{page.name}: run python scripts/pages/render.py"


def test_a_page_below_the_root_links_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for page, link in (("README.md", "(benchmarks/results/"), ("docs/page.md", "(../benchmarks/results/")):
        (tmp_path / page).write_text("<!-- [[[cog cog.outl(equality()) ]]] -->\n<!-- [[[end]]] -->\n")
        assert link in render.rendered(tmp_path / page)


def test_a_page_that_differs_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "DOCS", tmp_path)
    monkeypatch.setattr(render, "draw_pictures", lambda folder: None)
    page = tmp_path / "README.md"
    page.write_text("<!-- [[[cog cog.outl(equality()) ]]] -->\nold\n<!-- [[[end]]] -->\n")
    monkeypatch.setattr("sys.argv", ["render.py", "--check"])
    assert render.main() == 1
    assert "README.md differs from the result files" in capsys.readouterr().err
    assert "old" in page.read_text()
    monkeypatch.setattr("sys.argv", ["render.py"])
    assert render.main() == 0
    monkeypatch.setattr("sys.argv", ["render.py", "--check"])
    assert render.main() == 0
    assert "old" not in page.read_text()


def test_the_index_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "index.md").read_text())) == pages


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs", "benchmarks/notes"])
def test_links_lead_somewhere(page: str) -> None:
    files = [ROOT / page] if page.endswith(".md") else sorted((ROOT / page).glob("*.md"))
    for file in files:
        for target in re.findall(r"\]\(([\w./-]+)\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_agent_at_play_is_the_one_of_the_result_file() -> None:
    image = pytest.importorskip("PIL.Image", reason='needs Pillow: pip install -e ".[watch]"')
    run = median_run(result_files.load("epyc-2core/training"))
    with image.open(ROOT / "docs" / "agent.gif") as gif:
        assert gif.n_frames == pictures.AGENT_PIECES == len(list(pictures.agent_scenes(run)))
