"""The recipe of a training run: settings by their sources and precedence, and what follows from them.

Its curriculum is a line of text: the stages before the run's own board.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cem import describe_variance_schedule, parse_variance_schedule
from cem.core.backend import AUTO, BACKENDS
from kernels.support.checks import check_integer
from kernels.support.files import read_bytes
from kernels.support.names import unknown_name
from tetris import LinearController, Lookahead, Rules, feature_names
from tetris.game.feature_sets import feature_label
from tetris.play.splitting import MOST_STREAMS, least_decisions
from tetris.training.settings import (
    CUDA_PRESETS,
    CUDA_PRESETS_MULTIPROCESSORS,
    DEFAULT_PRESET,
    LEAST_SPLIT_STREAMS,
    PRESETS,
    PYTHON_PRESETS,
    Setting,
    Settings,
    check_settings,
)

FORMAT = "cem-tetris-run"
VERSION = 1

SPLIT_COST = 1.7
"""Relative cost of a decision with splitting on a high board, for the time left; 1 without, on a low one.

1.8 on an H200 and 1.6 on two cores, by the training metrics of benchmarks/results."""

_MOST_GENERATIONS = 1_000_000  # the stage of each is kept in a list
_WITHOUT_EFFECT = ("preset", "device", "score_decisions")
_NUMBER = re.compile(r"[:,]\s*[^,\s]+")  # in the text of a schedule
_ENTRY = re.compile(r"([^:]*):([1-9]\d{0,17})(?::([1-9]\d{0,17}))?(:split)?")


@dataclass(frozen=True)
class Stage:
    """A part of a run: generations on one board with the same settings.

    An entry of a curriculum such as ``10x12:14``, ``10x12:14:4000`` or ``10x20:30:2000:split``.
    """

    rules: Rules
    generations: int
    decisions: int  # on each stream; 0: those of the recipe
    split: bool = False

    def __str__(self) -> str:
        """Return the entry as text."""
        decisions = f":{self.decisions}" if self.decisions else ""
        return f"{self.rules.board}:{self.generations}{decisions}{':split' if self.split else ''}"

    @property
    def cost(self) -> float:
        """The relative cost of a generation: its decisions, times `SPLIT_COST` with splitting."""
        return self.decisions * (SPLIT_COST if self.split else 1.0)


def parse_curriculum(text: str, rules: Rules | None = None) -> list[Stage]:
    """Read stages such as ``"10x10:22,10x12:14:4000"``: board, generations, decisions, split.

    ``rules`` are those of the games, but for the board.
    """
    stages = []
    for entry in text.split(",") if text.strip() else []:
        match = _ENTRY.fullmatch("".join(entry.split()))
        if match is None:
            raise ValueError(
                "expected a curriculum as BOARD:GENERATIONS[:DECISIONS][:split],... such as "
                f"10x10:22,10x20:14:2000:split, got {entry.strip()!r} in {text!r}"
            )
        board, generations, decisions, split = match.groups()
        width, height = Rules.parse_board(board)
        on_board = replace(rules or Rules(), width=width, height=height)
        stages.append(Stage(on_board, int(generations), int(decisions or 0), bool(split)))
    return stages


def cut_to_board(text: str, width: int, height: int) -> str:
    """Return a curriculum on boards of this width and at most this height, with the same generations."""
    return ",".join(
        str(replace(each, rules=replace(each.rules, width=width, height=min(each.rules.height, height))))
        for each in parse_curriculum(text)
    )


@dataclass(frozen=True)
class Recipe(Settings):
    """The settings of a run, and what follows from them; TypeError or ValueError names a wrong one."""

    def __post_init__(self) -> None:
        """Validate, and normalise texts."""
        self._set(check_settings(asdict(self)))
        noise = describe_variance_schedule(parse_variance_schedule(self.noise))
        if len(_NUMBER.findall(noise)) > len(_NUMBER.findall(self.noise)):
            raise ValueError(
                f"expected noise with all its numbers, got {self.noise!r}: {noise} of the literature is for "
                "weights that begin with a variance of 100, these have length 1"
            )
        curriculum = ",".join(map(str, parse_curriculum(self.curriculum)))
        names = feature_names(self.features, self.rules.width)
        controller = LinearController(self.features, (0.0,) * len(names), self.rules)
        for stage in self.stages:
            controller.names_on(stage.rules)
        self._set({"board": self.rules.board, "pieces": self.rules.pieces, "features": controller.features})
        self._set({"noise": noise, "curriculum": curriculum})
        check_integer("all generations", self.total_generations, 1, _MOST_GENERATIONS)
        check_integer("elites of the population", self.elites, 2, self.population)
        least = least_decisions(self.burn_in)
        fewest = min((self.rounds(stage)[0][0] for stage in self.stages if stage.split), default=least)
        if self.splits and not (fewest >= least and 2 <= self.streams <= MOST_STREAMS):
            raise ValueError(
                f"expected stages with split to have at least {least} decisions in the first round on 2 to "
                f"{MOST_STREAMS} streams, got {fewest} on {self.streams} in the curriculum "
                f"{self.curriculum}: give another one, too"
            )

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def splits(self) -> bool:
        """Whether a stage has importance splitting."""
        return any(stage.split for stage in self.stages)

    @property
    def rules(self) -> Rules:
        """The rules on the board of the controller."""
        return Rules.of(*Rules.parse_board(self.board), self.rule, self.pieces)

    @property
    def lookahead(self) -> Lookahead:
        """What decisions consider."""
        return Lookahead.of(self.pieces_known)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the run, in order."""
        stages = parse_curriculum(self.curriculum, self.rules)
        if self.generations:
            stages.append(Stage(self.rules, self.generations, self.decisions))
        return tuple(replace(each, decisions=each.decisions or self.decisions) for each in stages)

    @property
    def total_generations(self) -> int:
        """The generations of all stages."""
        return sum(stage.generations for stage in self.stages)

    @cached_property
    def schedule(self) -> list[tuple[int, Stage]]:
        """The stage of each generation, and its number from 0."""
        return [(number, stage) for number, stage in enumerate(self.stages) for _ in range(stage.generations)]

    def rounds(self, stage: Stage) -> list[tuple[int, int]]:
        """Return the rounds of a generation: decisions of each on every stream, and candidates that play it.

        Half drop out after each round but the last, never so many that elites are missing; the decisions
        that count, all rounds together, double from round to round.
        """
        burn_in, numbers = self.burn_in if stage.split else 0, range(self.halvings + 1)
        ends = [0, *(burn_in + (stage.decisions - burn_in >> self.halvings - number) for number in numbers)]
        return [(ends[x + 1] - ends[x], max(self.elites, -(-self.population >> x))) for x in numbers]

    def decisions_until(self, generation: int) -> int:
        """Return the decisions of the first generations; the averaged mean plays beside the candidates."""
        played = [each for _, stage in self.schedule[:generation] for each in self.rounds(stage)]
        return self.streams * sum(decisions * (candidates + 1) for decisions, candidates in played)

    @property
    def title(self) -> str:
        """A line that describes the controller to train."""
        return f"{feature_label(self.features)}, population {self.population}, seed {self.seed}"

    def fingerprint(self) -> dict[str, Setting]:
        """Return the settings that determine the weights; the device is none of them, since engines agree."""
        return {name: value for name, value in asdict(self).items() if name not in _WITHOUT_EFFECT}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``config.json``."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def make_recipe(device: str, *layers: Mapping[str, Setting]) -> Recipe:
    """Merge settings into a recipe: the preset for the engine (not ``auto``), then the layers; the last wins.

    A layer that names one of several related settings changes the others: generations without a curriculum
    drop the curriculum; a curriculum without generations has none after it; a population without elites keeps
    their share; decisions without a curriculum apply to all its stages; a board without a curriculum cuts the
    preset's curriculum to its width and height.
    """
    given: dict[str, Any] = {}
    for layer in layers:
        given |= check_settings(layer)
    preset = given.get("preset", DEFAULT_PRESET)
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    settings: dict[str, Any] = {"backend": AUTO, **PRESETS[preset], **_changes(preset, device)}
    if "board" in given:
        settings["curriculum"] = cut_to_board(settings["curriculum"], *Rules.parse_board(given["board"]))
    for layer in layers:
        settings = _overlaid(settings, layer)
    if settings["backend"] == AUTO:  # what compiles the engine compiles the operators
        settings["backend"] = device if device in BACKENDS else "torch"
    return Recipe(**{**settings, "preset": preset, "device": device})


def _changes(preset: str, device: str) -> dict[str, Setting]:
    """Return the changes of a preset for an engine, and for the size of the GPU."""
    changes = dict({"python": PYTHON_PRESETS, "cuda": CUDA_PRESETS}.get(device, {}).get(preset, {}))
    if device == "cuda" and changes and torch.cuda.is_available():
        share = torch.cuda.get_device_properties().multi_processor_count / CUDA_PRESETS_MULTIPROCESSORS
        splits = any(stage.split for stage in parse_curriculum(str(changes["curriculum"])))
        least = LEAST_SPLIT_STREAMS if splits else 1
        changes["streams"] = max(least, round(int(changes["streams"]) * share))
        changes["score_decisions"] = max(1, round(int(changes["score_decisions"]) * share))
    return changes


def read_settings(path: Path) -> dict[str, Setting]:
    """Read a config file: some or all settings of a recipe."""
    try:
        values = json.loads(read_bytes(path).decode())
        if not isinstance(values, dict):
            raise ValueError(f"expected an object with settings, got {type(values).__name__}")
        for name, wanted in (("format", FORMAT), ("version", VERSION)):
            if values.pop(name, wanted) != wanted:
                raise ValueError(f"expected a config file of {name} {wanted}")
        return check_settings(values)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _overlaid(settings: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**settings, **layer}
    if "curriculum" not in layer:
        if "generations" in layer:
            merged["curriculum"] = ""
        elif "decisions" in layer:
            stages = parse_curriculum(settings["curriculum"])
            merged["curriculum"] = ",".join(str(replace(each, decisions=0)) for each in stages)
    elif "generations" not in layer:
        merged["generations"] = 0
    if "population" in layer and "elites" not in layer:
        merged["elites"] = max(2, -(-settings["elites"] * layer["population"] // settings["population"]))
    return merged
