"""Run folders damaged at random: one line or a result, never a traceback, and nothing is lost in silence."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_runs import make_run

Script = Callable[..., Any]
GENERATIONS = 3
VALUES: tuple[Any, ...] = (None, True, -1, 0, 1e308, 10**400, "", "x", [], [1], {}, {"a": 1})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "mine", estimated=True)


def _truncate(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 5))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _zero(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    begin = chance.randrange(len(content))
    content[begin : begin + 64] = bytes(len(content[begin : begin + 64]))
    path.write_bytes(content)


def _retype(path: Path, chance: random.Random) -> None:
    """Replace a value somewhere in the JSON, or remove it."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = chance.randrange(len(lines))
    root = json.loads(lines[number])
    node = root
    while True:
        key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not (isinstance(node[key], dict | list) and node[key]) or chance.random() < 0.2:
            break
        node = node[key]
    if chance.random() < 0.2:
        del node[key]
    else:
        node[key] = chance.choice(VALUES)
    lines[number] = json.dumps(root)
    path.write_text("\n".join(lines) + "\n")


def _delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def _empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def _folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (_truncate, _flip, _zero, _retype, _retype, _retype, _delete, _empty, _folder)


def _damage(run: Path, chance: random.Random) -> str:
    checkpoints = sorted((run / "checkpoints").iterdir())
    files = [*(run / name for name in ("config.json", "metrics.jsonl", "controller.json")), checkpoints[-1]]
    told = []
    for path in chance.sample(files, chance.choice((1, 1, 1, 2))):
        damage = chance.choice(DAMAGES)
        damage(path, chance)
        told.append(f"{damage.__name__[1:]} {path.name}")
    return ", ".join(told)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 25), pytest.param(2, 600, marks=pytest.mark.slow, id="slow")]
)
def test_damaged_runs(
    script: Script, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    monkeypatch.setattr("tetris.commands.training_run.draw", lambda training: None)
    monkeypatch.setattr("tetris.report.data.GAME_DECISIONS", 5)
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    failures = []
    for trial in range(count):
        run = Path(shutil.copytree(sound, tmp_path / str(trial) / "mine"))
        told = _damage(run, chance)
        failures += [f"trial {trial}: {told}: {failure}" for failure in _failures(script, run)]
        shutil.rmtree(run.parent)
    assert not failures, "\n".join(failures)


def _failures(script: Script, run: Path) -> Iterator[str]:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines() if metrics.is_file() else []
    for name, *arguments in (
        ("evaluate_tetris", run, "--board", "5x6", "--decisions", 20, "--device", "python"),
        ("watch_tetris", run, "--board", "5x6", "--decisions", 3),
        ("report_tetris", run),
        ("train_tetris", "--resume", run),
        ("report_tetris", run),
    ):
        try:
            ended = script(name, *arguments)
        except Exception as error:
            yield f"{name}: {error!r}"
            continue
        if ended.status not in (0, 2) or "Traceback" in ended.err:
            yield f"{name}: {ended}"
        elif ended.status == 2 and str(run) not in ended.err.splitlines()[-1]:
            yield f"{name} names no file: {ended.err}"
        elif name == "train_tetris" and ended.status == 0:
            after = metrics.read_bytes().splitlines() if metrics.is_file() else []
            aside = list(run.glob("metrics.jsonl.damaged*"))
            if len(after) < GENERATIONS and not re.search("missing|damaged", ended.err):
                yield f"lost in silence, {len(after)} lines are left: {ended.err}"
            if not aside and not set(lines[:-1]) <= set(after) and "begins again" not in ended.err:
                yield f"not kept aside: {ended.err}"
