"""Run folders damaged at random: one line or a result, never a traceback, and nothing is lost in silence."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tetris import LinearController

Script = Callable[..., Any]
"""Runs a script: ``script("name", "--flag")`` returns its ``status``, ``out`` and ``err``."""

_VALUES: tuple[Any, ...] = (None, -1, 1e308, "x", [], {"a": 1})


def _truncate(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 5))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
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
        node[key] = chance.choice(_VALUES)
    lines[number] = json.dumps(root)
    path.write_text("\n".join(lines) + "\n")


def _delete(path: Path, chance: random.Random) -> None:
    path.unlink()


_DAMAGES = (_truncate, _flip, _retype, _retype, _delete)


def damage(run: Path, chance: random.Random) -> str:
    """Damage one or two files of a run; return what was done to which."""
    checkpoints = sorted((run / "checkpoints").iterdir())
    files = [*(run / name for name in ("config.json", "metrics.jsonl", "controller.json")), checkpoints[-1]]
    told = []
    for path in chance.sample(files, chance.choice((1, 1, 1, 2))):
        change = chance.choice(_DAMAGES)
        change(path, chance)
        told.append(f"{change.__name__[1:]} {path.name}")
    return ", ".join(told)


def trials(script: Script, sound: Path, folder: Path, count: int, seed: int) -> Iterator[list[str]]:
    """Damage copies of a run in a folder; yield what is wrong with each."""
    chance = random.Random(seed)
    for trial in range(count):
        run = Path(shutil.copytree(sound, folder / str(trial) / "mine"))
        told = damage(run, chance)
        yield [f"trial {trial}: {told}: {each}" for each in failures(script, run, sound)]
        shutil.rmtree(run.parent)


def failures(script: Script, run: Path, sound: Path) -> Iterator[str]:
    """Let every command read a damaged copy of a run, and yield what is not as it should be."""
    learned, generations = _weights(sound), len((sound / "metrics.jsonl").read_bytes().splitlines())
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
            if _weights(run) != learned and "is taken as it is" not in ended.err:
                yield f"other weights: {ended}"
            after = metrics.read_bytes().splitlines() if metrics.is_file() else []
            aside = list(run.glob("metrics.jsonl.damaged*"))
            if len(after) < generations and not re.search("missing|damaged", ended.err):
                yield f"lost in silence, {len(after)} lines are left: {ended.err}"
            if not aside and not set(lines[:-1]) <= set(after) and "begins again" not in ended.err:
                yield f"not kept aside: {ended.err}"


def _weights(run: Path) -> tuple[float, ...]:
    return LinearController.load(run / "controller.json").weights
