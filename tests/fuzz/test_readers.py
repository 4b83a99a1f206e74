"""Every reader of files takes what is right and raises what it documents about anything else."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import changed, damaged, fuzz, st
from measure.provenance import RESULTS, read_result
from sample_runs import make_run

from cem import Checkpointer, CheckpointError
from cem.checkpoint import _digest, read_checkpoint, write_checkpoint
from tetris import LinearController, Rules, published
from tetris.commands.evaluate import read_pieces
from tetris.commands.show import _is_replay
from tetris.game.piece_stream import PieceStream
from tetris.record.explanation import decisions
from tetris.record.replay import DamagedReplayError, Replay
from tetris.record.replay import _digest as replay_digest
from tetris.report.page import report_page
from tetris.solver import Solution
from tetris.training.recipe import read_settings
from tetris.training.run_record import load_run, read_metrics

Reader = Callable[[Path], Any]
SMALL = Rules(5, 6)


def replay() -> Replay:
    controller = replace(published("dt20"), provenance={"a": [1, {"b": None}]})
    played = islice(decisions(controller, SMALL, PieceStream(SMALL, 1, 0)), 12)
    return Replay.of(played, SMALL, 1, 0, controller)


def play(path: Path) -> None:
    """Read a replay and play it, as a viewer does."""
    loaded = Replay.load(path)
    try:
        for _ in loaded.after_states():
            pass
    except DamagedReplayError:
        pass


def check_file(path: Path, read: Reader, errors: tuple[type[Exception], ...]) -> None:
    """Read a file; of the errors, each is in one line with the file's name."""
    try:
        read(path)
    except errors as error:
        assert path.name in str(error)  # noqa: PT017 - other errors come through
        assert type(error) in (ValueError, CheckpointError)  # noqa: PT017 - no JSONDecodeError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", estimated=True)


@pytest.mark.parametrize(
    ("read", "values"),
    [
        pytest.param(LinearController.load, published("dt20").to_dict(), id="controller"),
        pytest.param(play, replay().to_dict(), id="replay"),
        pytest.param(read_settings, {"preset": "quick", "seed": 3, "averaging": 0.5}, id="settings"),
        pytest.param(read_result, {"commit": "a", "machine": {}, "figures": {}, "data": {}}, id="result"),
    ],
)
def test_changed_values_of_a_file(read: Reader, values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    def check(content: Any, sign: bool) -> None:
        if sign and isinstance(content, dict) and "digest" in content:
            content = {**content, "digest": replay_digest(content)}
        path.write_text(json.dumps(content))
        check_file(path, read, (ValueError,))

    fuzz(check, 60, content=changed(values), sign=st.booleans())


@pytest.mark.parametrize(
    ("read", "content"),
    [
        pytest.param(
            LinearController.load, json.dumps(published("dt20").to_dict()).encode(), id="controller"
        ),
        pytest.param(play, json.dumps(replay().to_dict()).encode(), id="replay"),
        pytest.param(read_settings, b'{"preset": "quick", "seed": 3}', id="settings"),
        pytest.param(read_metrics, b'{"generation": 1}\n{"generation": 2}\n', id="metrics"),
        pytest.param(read_result, (RESULTS / "h200" / "first_run.json").read_bytes(), id="result"),
        pytest.param(read_pieces, b"0 1 2\n3 4 5 6\n", id="pieces"),
        pytest.param(lambda path: _is_replay(str(path)), b'{"format": "cem-tetris-replay"}', id="kind"),
    ],
)
def test_damaged_bytes_of_a_file(read: Reader, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        check_file(path, read, (ValueError,))

    fuzz(check, 60, content=damaged(content))


def test_a_checkpoint_that_was_changed_and_signed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-000001.json"
    state = {"mean": torch.ones(2, 3), "ints": torch.arange(3), "text": "x", "list": [1, None, {"a": 0.5}]}
    write_checkpoint(path, 1, state, {"seed": 1})
    values = json.loads(path.read_text())

    def check(content: Any, sign: bool) -> None:
        if sign and isinstance(content, dict):
            rest = {key: value for key, value in content.items() if key != "sha256"}
            with contextlib.suppress(ValueError):  # NaN
                content = {**rest, "sha256": _digest(rest)}
        path.write_text(json.dumps(content))
        check_file(path, lambda path: read_checkpoint(path, {"seed": 1}), (CheckpointError,))
        with contextlib.suppress(CheckpointError):
            Checkpointer(tmp_path).load_latest()

    fuzz(check, 60, content=changed(values), sign=st.booleans())


def solution(pieces_known: int = 1) -> Solution:
    values = torch.zeros(1 << 16, 1 if pieces_known == 1 else 8, dtype=torch.float64)
    values[:3, :7] = torch.tensor([[7.0], [6.5], [1.0]])
    return Solution(Rules(4, 4), pieces_known, values.reshape(-1), 7.0, 1e-7, 3, 10, 0.5)


def test_changed_values_of_a_solution(tmp_path: Path) -> None:
    path = tmp_path / "solution.npz"
    solution(2).save(path)
    with np.load(path, allow_pickle=False) as file:
        said = json.loads(str(file["solution"]))
        content = {"said": said, "boards": file["boards"].tolist(), "values": file["values"].tolist()}

    def check(content: Any, exact: bool) -> None:
        arrays = content if isinstance(content, dict) else {"said": content}
        boards, values = arrays.get("boards"), arrays.get("values")
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # no array of such numbers
            boards = np.array(boards, np.uint32 if exact else None)
            values = np.array(values, np.float64 if exact else None)
        try:
            np.savez(path, solution=json.dumps(arrays.get("said")), boards=boards, values=values)
        except (ValueError, UnicodeError):  # lists of unequal lengths
            return
        check_file(path, Solution.load, (ValueError,))

    fuzz(check, 100, content=changed(content), exact=st.booleans())


def test_damaged_bytes_of_a_solution(tmp_path: Path) -> None:
    path = tmp_path / "solution.npz"
    solution().save(path)

    def check(content: bytes) -> None:
        path.write_bytes(content)
        check_file(path, Solution.load, (ValueError,))

    fuzz(check, 100, content=damaged(path.read_bytes()))


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json", "controller.json"])
def test_a_run_with_changed_metrics_or_settings(run: Path, name: str) -> None:
    path = run / name
    before = path.read_bytes()
    *others, last = [
        json.loads(line) for line in (before.splitlines() if name == "metrics.jsonl" else [before])
    ]

    def check(content: Any) -> None:
        path.write_text("".join(json.dumps(each) + "\n" for each in [*others, content]))
        try:
            record = load_run(run)
        except ValueError as error:
            assert name in str(error) or "a run of at least one generation" in str(error)  # noqa: PT017
        else:
            report_page(record).encode()

    try:
        fuzz(check, 25, content=changed(last, 2))
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("read", "most", "error"),
    [
        (LinearController.load, "tetris.play.controller.MOST_BYTES", ValueError),
        (Replay.load, "tetris.record.replay.MOST_BYTES", ValueError),
        (read_settings, "tetris.training.recipe.MOST_BYTES", ValueError),
        (read_metrics, "tetris.training.run_record.MOST_BYTES", ValueError),
        (read_pieces, "tetris.commands.evaluate._MOST_BYTES", ValueError),
        (read_checkpoint, "cem.checkpoint.MOST_BYTES", CheckpointError),
    ],
)
def test_no_more_of_a_file_is_read_than_its_limit(
    read: Reader, most: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(most, 1000)
    with pytest.raises(error, match=r"zero.*expected at most 1,000 bytes, got more"):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("package", ["cem", "kernels", "tetris"])
def test_no_file_is_executed(package: str) -> None:
    loaders = re.compile(
        r"\b(pickle\.loads?|Unpickler|torch\.load|marshal|shelve|eval|exec)\("
        r"|\b(np|numpy)\.load\((?!\w+, allow_pickle=False\))"
    )
    files = sorted((Path(__file__).parents[2] / package).rglob("*.py"))
    assert files
    assert [path for path in files if loaders.search(path.read_text(encoding="utf-8"))] == []
