"""The documentation as a site: it is built without a warning, and shows what the repository's
pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytest.importorskip("mkdocs", reason='needs mkdocs-material: pip install -e ".[docs]"')
pytest.importorskip("mkdocstrings", reason='needs mkdocstrings: pip install -e ".[docs]"')


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr

    home = (tmp_path / "index.html").read_text()
    assert '<meta name="description" content="cem is an optimiser ' in home
    assert '<meta property="og:image" content="card.png">' in home
    assert "autofocus" not in home
    assert 'role="dialog" aria-label="Search"' in home
    for package, name in (("cem", "minimize"), ("tetris.report", "plot_learning_curve")):
        assert f'id="{package}.{name}"' in (tmp_path / "api" / f"{package}.html").read_text()
    quoting = [
        page.name
        for page in (tmp_path / "api").glob("*.html")
        if "<blockquote>" in page.read_text()
    ]
    assert not quoting, "a program outside the section Examples, taken for quoted text"
    for page in tmp_path.rglob("*.html"):
        text = re.sub(r"<(pre|code).*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"<p>[^<]*\n(- |1\. |\| --)", text), (
            f"{page.name}: a list or table without a blank line before it"
        )


def test_a_page_is_described_by_its_first_paragraph() -> None:
    from pages import site

    text = "# Title\n\n![a](b.png)\n\nThe [first](c.md) `one`.\n\nThe second."
    assert site.description(text) == "The first one."
    assert len(site.description("Word " * 100)) <= 160


def test_a_link_leads_to_the_same_thing_on_the_site() -> None:
    from pages import site

    text = "[a](engine.md#pieces) [b](../README.md) [c](../benchmarks/notes/x-tried.txt) [d](https://e.f)"
    with pytest.raises(
        ValueError, match=r"docs/faq\.md links to, found no benchmarks/notes/x-tried\.txt"
    ):
        site.with_site_links(text, "docs/faq.md")
    text = text.replace("x-tried", "dellacherie-ties")
    assert site.with_site_links(text, "docs/faq.md") == (
        "[a](engine.md#pieces) [b](start.md) "
        "[c](repository/benchmarks/notes/dellacherie-ties.txt) [d](https://e.f)"
    )
    assert site.with_site_links(
        "![a](docs/evolution.gif) [b](benchmarks/notes)", "README.md"
    ) == ("![a](evolution.gif) [b](repository/benchmarks/notes/index.md)")
