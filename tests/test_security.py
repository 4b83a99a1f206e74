"""What SECURITY.md promises of files of others, where no other test holds it.

That nothing is unpickled: tests/fuzz/test_readers.py. A pickle in place of a checkpoint:
tests/cem/test_checkpoint.py. Control characters: tests/tetris/test_printable.py. The folder of
compiled libraries: tests/kernels/test_cache.py. Modules in the current folder:
tests/test_packaging.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path

import pytest
from sample_runs import make_run

from tetris import LinearController, Rules, published
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.record.replay import Replay
from tetris.report.page import report_page
from tetris.training.run_folder import RunRecord, load_run
from tetris.view.replay_page import player_page

HOSTILE = (
    "\"><img src=x onerror='alert(1)'><script>alert(1)</script></title>"
    "' onload=alert(1) &lt;script&gt;"
)
SMALL = Rules(6, 6)


class Elements(HTMLParser):
    """Collects the elements of a page with the names of their attributes, and what they link
    to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []
        self.links: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))
        self.links += [
            value for name, value in attrs if name in {"src", "href", "action", "data"}
        ]


def test_a_name_adds_no_element_and_no_attribute_to_a_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")

    def named(name: str) -> RunRecord:
        run = replace(load_run(folder), name=name)
        names = dict.fromkeys(("controller", "board", "pieces", "rule"), name)
        run.controller.provenance["score"] = [{**each, **names} for each in run.scores]  # type: ignore[index]
        return run

    hostile, plain = named(HOSTILE), named("name")
    for one, other in (
        (report_page([hostile]), report_page([plain])),
        (report_page([hostile, hostile]), report_page([plain, plain])),
    ):
        assert Elements(one).found == Elements(other).found
        assert all(link.startswith("#") for link in Elements(one).links)  # its own sections


def test_a_name_adds_no_element_and_no_attribute_to_the_page_of_a_replay() -> None:
    def page(name: str) -> Elements:
        controller = replace(published("dt20"), name=name)
        played = islice(play(PieceStream(SMALL, 1, 0), controller.player(SMALL), SMALL), 5)
        replay = Replay.of(played, SMALL, 1, 0, controller)
        return Elements(player_page(replay, name))

    assert page(HOSTILE).found == page("name").found
    assert page(HOSTILE).links == []


@pytest.mark.parametrize(
    "features", ["holes>{}; int planted() {", "../../planted", "holes\n#include <x>"]
)
def test_features_that_are_no_names_are_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(cache))
    content = {**published("dt20").to_dict(), "features": features}
    (tmp_path / "controller.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"controller\.json holds no valid controller: expected a feature"
    ):
        LinearController.load(tmp_path / "controller.json")
    assert not cache.exists()
