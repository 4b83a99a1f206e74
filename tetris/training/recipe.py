"""The settings of a training run: their sources, their precedence and their ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cem import describe_noise, parse_noise
from cem.sampling import AUTO, BACKENDS
from kernels.support.checks import check_integer
from kernels.support.files import read_bytes
from kernels.support.names import unknown_name
from tetris import LinearController, Lookahead, Rules, feature_names
from tetris.game.feature_sets import feature_label
from tetris.game.rules import RULES
from tetris.play.controller import MOST_BYTES
from tetris.play.devices import ENGINES
from tetris.play.splitting import LEAST_DECISIONS, MOST_STREAMS
from tetris.training.curriculum import Stage, cut_to_board, parse_curriculum
from tetris.training.presets import (
    CUDA_PRESETS_MULTIPROCESSORS,
    DEFAULT_PRESET,
    DEVICE_PRESETS,
    LEAST_SPLIT_STREAMS,
    PRESETS,
    Setting,
)

FORMAT = "cem-tetris-run"
VERSION = 1

_LEAST = {
    "generations": 0,
    "population": 2,
    "elites": 2,
    "streams": 1,
    "decisions": 1,
    "seed": 0,
    "score_decisions": 0,
    "pieces_known": 1,
}
_MOST = {"decisions": 1 << 62, "seed": (1 << 64) - 1, "pieces_known": 2}
_MOST_BOARDS = 1 << 26  # population x streams, all of them in memory at once
_MOST_GENERATIONS = 1_000_000  # the cost of each is kept in a list
_WITHOUT_EFFECT = ("preset", "device", "score_decisions")


@dataclass(frozen=True)
class Recipe:
    """All settings of a run and of its scores; the content of ``config.json``.

    Attributes:
        preset: The preset of the settings that were not given.
        board: The board the controller is for, as WIDTHxHEIGHT.
        rule: When a game ends: one of `RULES`.
        pieces: Piece source, as in `Rules`.
        features: Feature set or feature names.
        curriculum: Stages before the one on ``board``, as `parse_curriculum` reads them; may be empty.
        generations: Generations on ``board``, after the curriculum; may be 0.
        population: Candidates per generation.
        elites: Number of elites.
        noise: Noise schedule, as `cem.parse_noise` reads it.
        averaging: ``mean_averaging`` of `cem.CrossEntropyMethod`, 0 to 1.
        streams: Streams of games of each candidate.
        decisions: Decisions on each stream in stages without their own number.
        backend: The backend of `cem` that draws the candidates.
        device: The engine that plays.
        seed: Seed of candidates and pieces.
        score_decisions: Decisions per controller in the final comparison; 0 leaves it out.
        pieces_known: 1, the piece that falls, or 2, the next one, too; in training and in the comparison.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a value or a combination of values is out of range.
    """

    preset: str
    board: str
    rule: str
    pieces: str
    features: str
    curriculum: str
    generations: int
    population: int
    elites: int
    noise: str
    averaging: float
    streams: int
    decisions: int
    backend: str
    device: str
    seed: int
    score_decisions: int
    pieces_known: int = 1

    def __post_init__(self) -> None:
        """Validate, and normalise texts."""
        self._set(_checked(asdict(self)))
        for name, known in (("rule", RULES), ("backend", BACKENDS), ("device", ENGINES)):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        noise = describe_noise(parse_noise(self.noise))
        if _count_numbers(noise) > _count_numbers(self.noise):
            raise ValueError(
                f"expected noise with all its numbers, got {self.noise!r}: {noise} of the literature is for "
                "weights that begin with a variance of 100, these have length 1"
            )
        curriculum = ",".join(map(str, parse_curriculum(self.curriculum)))
        self._set({"board": self.rules.board, "pieces": self.rules.pieces})
        self._set({"noise": noise, "curriculum": curriculum, "features": self._canonical_features()})
        self._check_sizes()

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_sizes(self) -> None:
        total, boards = self.total_generations, self.population * self.streams
        fewest = min((stage.decisions for stage in self.stages if stage.split), default=None)
        splits = fewest is None or (fewest >= LEAST_DECISIONS and 2 <= self.streams <= MOST_STREAMS)
        for fits, expected in (
            (total, "at least one generation, got --generations 0 and no curriculum"),
            (total <= _MOST_GENERATIONS, f"at most {_MOST_GENERATIONS:,} generations, got {total:,}"),
            (
                splits,
                f"stages with split to have at least {LEAST_DECISIONS} decisions on 2 to {MOST_STREAMS} "
                f"streams, got {fewest} on {self.streams} in the curriculum {self.curriculum}: give another "
                "one, too",
            ),
            (
                self.elites <= self.population,
                f"elites to be at most the population of {self.population}, got {self.elites}",
            ),
            (
                boards <= _MOST_BOARDS,
                f"population x streams to be at most {_MOST_BOARDS:,}, "
                f"got {self.population:,} x {self.streams:,}",
            ),
        ):
            if not fits:
                raise ValueError(f"expected {expected}")

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

    def decisions_until(self, generation: int) -> int:
        """Return the decisions of the first generations; the averaged mean plays beside the candidates."""
        steps = [stage.decisions for stage in self.stages for _ in range(stage.generations)]
        return sum(steps[:generation]) * self.streams * (self.population + 1)

    @property
    def title(self) -> str:
        """A line that describes the controller to train."""
        return f"{feature_label(self.features)}, population {self.population}, seed {self.seed}"

    def stage_at(self, generation: int) -> tuple[int, Stage]:
        """Return the number of a generation's stage, from 0, and the stage; generations count from 0."""
        end = 0
        for number, stage in enumerate(self.stages):
            end += stage.generations
            if generation < end:
                return number, stage
        raise ValueError(f"expected a generation below {end}, got {generation}")

    def fingerprint(self) -> dict[str, Setting]:
        """Return the settings that determine the weights; the device is none of them, since engines agree."""
        return {name: value for name, value in asdict(self).items() if name not in _WITHOUT_EFFECT}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``config.json``."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def _canonical_features(self) -> str:
        names = feature_names(self.features, self.rules.width)
        for stage in self.stages:
            if feature_names(self.features, stage.rules.width) != names:
                raise ValueError(
                    f"expected boards of one width for the features {self.features}, "
                    f"got {self.rules.board} and {stage.rules.board}"
                )
        return LinearController(self.features, (0.0,) * len(names), self.rules).features


def make_recipe(device: str, *layers: Mapping[str, Setting]) -> Recipe:
    """Merge settings into a recipe: the preset for the engine (not ``auto``), then the layers; the last wins.

    A layer that names one of several related settings changes the others: generations without a curriculum
    drop the curriculum; a curriculum without generations has none after it; a population without elites keeps
    their share; decisions without a curriculum apply to all its stages; a board without a curriculum cuts the
    preset's curriculum to its width and height.
    """
    given: dict[str, Any] = {}
    for layer in layers:
        given |= _checked(layer)
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
    changes = dict(DEVICE_PRESETS.get(device, {}).get(preset, {}))
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
        values = json.loads(read_bytes(path, MOST_BYTES).decode())
        if not isinstance(values, dict):
            raise ValueError(f"expected an object with settings, got {type(values).__name__}")
        for name, wanted in (("format", FORMAT), ("version", VERSION)):
            if values.pop(name, wanted) != wanted:
                raise ValueError(f"expected a config file of {name} {wanted}")
        return _checked(values)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a recipe by name; TypeError and ValueError name a wrong one."""
    types = {field.name: field.type for field in fields(Recipe)}
    checked = dict(settings)
    for name, value in settings.items():
        if name not in types:
            raise unknown_name("setting", name, types)
        if types[name] == "int":
            checked[name] = check_integer(name, value, _LEAST[name], _MOST.get(name))
        elif types[name] == "float":
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"expected {name} to be a number, got {value!r}")
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"expected {name} to be from 0 to 1, got {value}")
            checked[name] = float(value)
        elif not isinstance(value, str):
            raise TypeError(f"expected {name} to be a text, got {value!r}")
    return checked


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


def _count_numbers(noise: str) -> int:
    """Return how many numbers the text of a schedule has."""
    return len(noise.partition(":")[2].replace(",", " ").split())
