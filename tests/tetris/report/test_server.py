"""tetris/report/server.py: one page on the loopback address, made again when the run
changes."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_runs import make_run

from tetris.report.page import runs_page
from tetris.report.server import ReportServer
from tetris.training.run_folder import RunFolder, RunRecord, load_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "mine")


@pytest.fixture
def server(run: Path) -> Iterator[ReportServer]:
    with ReportServer([run]) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def ask(
    server: ReportServer, path: str = "/", method: str = "GET", host: str | None = None
) -> tuple[int, str | None, str]:
    """Return status, version and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(
        method, path, headers={"Host": host or f"localhost:{server.server_port}"}
    )
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("ETag"), text


def test_the_page_is_live_and_names_its_version(server: ReportServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, version, page = ask(server)
    assert (status, "DOMParser" in page) == (200, True)
    assert f'data-version="{version}"' in page
    assert 'class="badge"' not in page  # nobody trains
    assert ask(server, method="HEAD") == (200, version, "")
    assert ask(server) == (200, version, page)


def test_a_change_of_the_folder_changes_the_page(server: ReportServer, run: Path) -> None:
    _, before, _ = ask(server)
    metrics = run / "metrics.jsonl"
    last = metrics.read_text().splitlines(keepends=True)[-1]
    metrics.write_text(metrics.read_text() + last.replace('"generation": 3', '"generation": 4'))
    _, after, page = ask(server)
    assert after != before
    assert "4 of 3 generations" in page
    versions = []
    for nanoseconds in (1, 2):
        os.utime(metrics, ns=(0, nanoseconds))
        versions.append(ask(server)[1])
    assert versions[0] != versions[1]


def test_a_run_that_cannot_be_read_is_waited_for(server: ReportServer, run: Path) -> None:
    _, whole, _ = ask(server)
    (run / "metrics.jsonl").rename(run / "away")
    status, version, page = ask(server)
    assert (status, version, 'http-equiv="refresh"' in page) == (503, None, True)
    (run / "away").rename(run / "metrics.jsonl")
    assert ask(server)[:2] == (200, whole)


def test_a_page_that_takes_long_blocks_no_other(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(run.parent / "other", seed=4)
    begun, ended = threading.Event(), threading.Event()

    def load(path: Path) -> RunRecord:
        if path.name == "other":
            begun.set()
            assert ended.wait(30)
        return load_run(path)

    monkeypatch.setattr("tetris.report.server.load_run", load)
    with ReportServer([run.parent]) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        slow = threading.Thread(target=ask, args=(server, "/?run=other"))
        slow.start()
        assert begun.wait(30)
        assert ask(server, "/?run=mine")[0] == 200
        ended.set()
        slow.join()
        server.shutdown()


def test_a_link_in_a_folder_of_runs_is_named_and_not_followed(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(run)
    with ReportServer([tmp_path / "runs"]) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert "expected a file of its own, got a link" in ask(server)[2]
        status, _, page = ask(server, "/?run=link")
        assert (status, "got a link" in page) == (503, True)
        server.shutdown()


def test_hosts_of_other_names_are_forbidden_and_nothing_but_the_page_is_served(
    server: ReportServer,
) -> None:
    for host in ("example.com:80", "127.0.0.1.example.com:80", "example.com", "[::1]:80"):
        assert ask(server, host=host)[0] == 403
    for host in ("localhost", "127.0.0.1", "127.0.0.1:80"):
        assert ask(server, host=host)[0] == 200
    assert ask(server, "/metrics.jsonl")[0] == 404
    assert ask(server, "/../config.json")[0] == 404


def test_the_runs_of_a_folder_are_listed_and_those_that_are_named_shown(run: Path) -> None:
    make_run(run.parent / "other", seed=4)
    (run.parent / "damaged").mkdir()
    (run.parent / "damaged" / "config.json").write_text("{}")
    with ReportServer([run.parent]) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        RunFolder(run).note.write_text("the first\n#keep")
        status, version, page = ask(server)
        assert (status, version) == (200, None)
        assert '<td data-name="note">the first <b>#keep</b></td>' in page
        assert [f'href="?run={name}"' in page for name in ("mine", "other", "damaged")] == [
            True
        ] * 3
        assert "4,748 lines per game on 10x10" in page
        assert "2 training runs: mine, other" in ask(server, "/?run=mine&run=other")[2]
        assert ask(server, "/?run=../mine")[0] == 200  # a name, no path
        assert ask(server, "/?run=damaged")[0] == 503
        assert f"expected a run in {run.parent / 'none'}" in ask(server, "/?run=none")[2]
        server.shutdown()


def test_the_folder_around_that_of_the_runs_is_not_shown(run: Path) -> None:
    make_run(run / "more" / "other")
    with ReportServer([run / "more"]) as server:
        assert server.page(["other"])
        for name in ("..", "other/..", "../.."):
            with pytest.raises(ValueError, match="expected a run in"):
                server.page([name])


def test_the_page_says_when_a_run_has_ended(server: ReportServer, run: Path) -> None:
    with RunFolder(run).claimed(None):
        _, before, page = ask(server)
        assert 'class="badge"' in page
    _, after, page = ask(server)
    assert after != before
    assert 'class="badge"' not in page


def test_the_newest_run_comes_first(run: Path) -> None:
    other = make_run(run.parent / "other", seed=4)
    for newest, oldest in ((run, other), (other, run)):
        os.utime(newest, (2e9, 2e9))
        os.utime(oldest, (1e9, 1e9))
        page = runs_page(run.parent)
        assert page.index(f"?run={newest.name}") < page.index(f"?run={oldest.name}")
