"""A key of any file of a run that is missing, renamed or of another type: commands end in a
line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_runs import make_run

from tetris.report.page import report_page, runs_page
from tetris.training.run_folder import load_run

FILES = ("config.json", "controller.json", "metrics.jsonl", "starts.jsonl")
STRANGE = (None, "x", -1, 1e308, [None])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "whole", estimated=True)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "mine"))


def paths_of(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where all values are; of a list the first alone."""
    if path:
        yield path
    if isinstance(values, dict):
        for key in values:
            yield from paths_of(values[key], (*path, key))
    elif isinstance(values, list) and values:
        yield from paths_of(values[0], (*path, 0))


def changes(values: Any) -> Iterator[Any]:
    """Yield values of JSON with a key removed, renamed or of another type."""
    for path in paths_of(values):
        for change in ("remove", "rename", *STRANGE):
            copy = json.loads(json.dumps(values))
            *above, last = path
            inner = copy
            for key in above:
                inner = inner[key]
            if change == "remove":
                inner.pop(last)
            elif change == "rename" and isinstance(last, str):
                inner[f"{last}_"] = inner.pop(last)
            else:
                inner[last] = change
            yield copy


@pytest.mark.parametrize("name", FILES)
def test_a_strange_file_is_reported_or_named_in_an_error(
    name: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris.report.data.GAME_DECISIONS", 1)
    file = run / name
    text = file.read_text()
    first, _, rest = text.partition("\n") if name.endswith("jsonl") else (text, "", "")
    for number, values in enumerate(changes(json.loads(first))):
        file.write_text(json.dumps(values) + "\n" + rest)
        try:
            record = load_run(run)
        except ValueError as error:
            assert str(file) in str(error)  # noqa: PT017 - other errors come through
            assert "\n" not in str(error)  # noqa: PT017
        else:
            if number % 8 == 0:  # of every path another change
                report_page([record])


def test_the_command_and_the_list_of_runs_name_the_file_and_the_key(
    run: Path, script: Any
) -> None:
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"lines"', '"line"'))
    said = f"{metrics}: line 1: expected the key 'lines', got ["
    for name, options in (
        ("report_tetris", ()),
        ("watch_tetris", ("--evolution", run / "a.gif")),
    ):
        ended = script(name, run, *options)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert said in ended.err
    assert "expected the key" in runs_page(run.parent)


def test_a_resumed_run_names_a_score_without_its_board(run: Path, script: Any) -> None:
    controller = run / "controller.json"
    controller.write_text(
        controller.read_text().replace('"board": "10x10"', '"size": "10x10"', 1)
    )
    ended = script("train_tetris", "--resume", run)
    assert ended.status == 2
    assert (
        f"{controller}: provenance: score: 1: expected the key 'board'"
        in ended.err.splitlines()[-1]
    )
