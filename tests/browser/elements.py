"""The elements of a page."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = ("meta", "input", "br")


class Elements(HTMLParser):
    """Checks that elements are closed in order, and notes their names, links and ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str | None] = []
        self.ids: list[str | None] = []
        self.feed(page)
        assert self.open == []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
