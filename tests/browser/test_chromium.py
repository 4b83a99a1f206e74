"""tests/browser/chromium.py: what a page complains about is noticed."""

from __future__ import annotations

from pathlib import Path

from chromium import Page

PROGRAMS = """
console.error("spoilt");
setTimeout(() => { throw new Error("torn"); });
fetch("https://example.invalid/").catch(() => {});
new Image().src = "missing.png";
"""


def test_what_a_page_complains_about_is_noticed(browser_page: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        f"<!doctype html><title>x</title><script>{PROGRAMS}</script>"
    )
    browser_page.open(tmp_path / "page.html")
    browser_page.evaluate("new Promise((done) => setTimeout(done, 300))")
    found, browser_page.problems[:] = " ".join(browser_page.problems), []
    for problem in ("spoilt", "torn", "request for https://example.invalid/", "missing.png"):
        assert problem in found
