"""tetris/record/replay.py: what a replay holds, and what is noticed of damage."""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tetris import Rules, Streams, published, rollout
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import placement_numbers, placements_on
from tetris.record.replay import DamagedReplayError, Replay

SMALL = Rules(6, 6, clear_on_overflow=True, pieces="bag")


def recorded(rules: Rules, count: int, seed: int = 7) -> Replay:
    controller = published("dt20")
    played = islice(play(PieceStream(rules, seed, 0), controller.player(rules), rules), count)
    return Replay.of(played, rules, seed, 0, controller)


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the digest that belongs to them, as only a program would write it."""
    content = {key: value for key, value in values.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}


@pytest.mark.parametrize(
    "rules",
    [Rules(10, 10), SMALL, Rules(5, 8, pieces="SZ"), Rules(6, 6, original=True)],
    ids=str,
)
def test_a_replay_is_the_game_that_the_engines_play(rules: Rules) -> None:
    for count in range(40, 60):  # the last placement ends a game, or not
        replay = recorded(rules, count)
        played = rollout(published("dt20").policy(), Streams(rules, seed=7), count)
        assert (replay.lines, replay.games) == (played.lines.item(), played.games.item())
    assert len(list(replay.after_states())) == count


def test_a_replay_comes_back_from_its_file(tmp_path: Path) -> None:
    replay = recorded(SMALL, 200)
    assert replay.games > 0
    replay.save(tmp_path / "replay.json")
    loaded = Replay.load(tmp_path / "replay.json")
    assert loaded == replay
    assert loaded.controller == published("dt20")


def test_a_person_has_no_controller_and_a_file_of_pieces_no_seed() -> None:
    replay = Replay(Rules(), bytes([0, 17, 26]), 0, 0)
    assert Replay.from_dict(json.loads(json.dumps(replay.to_dict()))) == replay


def test_placements_are_numbered_by_piece_orientation_and_column() -> None:
    table = placements_on(10)
    keys = [(shape.piece, shape.orientation, column) for shape, column in table]
    assert len(table) == 162
    assert keys == sorted(keys)
    assert [placement_numbers(10)[key] for key in keys] == list(range(162))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "expected version 2 of the format, got 3"),
        ({"format": "other"}, 'expected an object with "format": "cem-tetris-replay"'),
        ({"lines": 99}, "the digest does not match: the file is damaged or was edited"),
    ],
)
def test_another_or_an_edited_file_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replay.from_dict({**recorded(SMALL, 5).to_dict(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 4}, "expected 4 placements, got more"),
        ({"count": -1}, "expected a count of 0 to"),
    ],
)
def test_what_a_program_wrote_wrongly_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replay.from_dict(sealed({**recorded(SMALL, 5).to_dict(), **change}))


def test_a_piece_that_the_rules_do_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="of 10x20 with pieces ZS, got number 0"):
        Replay(Rules(pieces="SZ"), bytes([60, 0]), 0, 0)


def test_other_pieces_than_those_of_the_seed_are_noticed_when_they_come() -> None:
    replay = recorded(SMALL, 20)
    other = Replay(SMALL, replay.placements, replay.lines, replay.games, seed=8, stream=0)
    with pytest.raises(DamagedReplayError, match=r"expected . as piece \d+ of seed 8, got ."):
        list(other.after_states())


def test_other_lines_than_those_told_are_noticed_at_the_end() -> None:
    replay = recorded(SMALL, 20)
    other = Replay(SMALL, replay.placements, replay.lines + 1, replay.games)
    played = other.after_states()
    assert len(list(islice(played, 20))) == 20
    with pytest.raises(DamagedReplayError, match=f"expected {replay.lines + 1} lines and"):
        next(played)


def test_a_file_is_named_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    file = tmp_path / "replay.json"
    file.write_text('{"format": "cem-tetris-replay", "ver')
    with pytest.raises(
        ValueError, match=r"replay.json holds no valid replay: Unterminated string"
    ):
        Replay.load(file)
