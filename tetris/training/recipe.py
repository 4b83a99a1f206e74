"""The recipe of a training run: its settings, merged by precedence, and what follows from them.

The curriculum of a recipe is a text that lists the stages of training. The run's own board
comes after them.
"""

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
from tetris import LinearController, Lookahead, Rules, weight_names
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
"""The time of a decision with splitting, relative to a decision without; for estimates.

It is 1.8 on an H200 and 1.6 on two cores, by the training metrics of benchmarks/results."""

_MOST_GENERATIONS = 1_000_000  # A list holds the stage of every generation.
_WITHOUT_EFFECT = ("preset", "device", "score_decisions")
_NUMBER = re.compile(r"[:,]\s*[^,\s]+")  # A number in the text of a variance schedule.
_ENTRY = re.compile(r"([^:]*):([1-9]\d{0,17})(?::([1-9]\d{0,17}))?(:split)?")


@dataclass(frozen=True)
class Stage:
    """A part of a run: generations on one board with the same settings.

    In a curriculum it is an entry such as ``10x12:14``, ``10x12:14:4000`` or
    ``10x20:30:2000:split``.
    """

    rules: Rules
    generations: int
    decisions: int  # On each stream; 0 stands for the decisions of the recipe.
    split: bool = False

    def __str__(self) -> str:
        """Return the entry as text."""
        text = f"{self.rules.board}:{self.generations}"
        if self.decisions:
            text += f":{self.decisions}"
        return text + ":split" if self.split else text

    @property
    def cost(self) -> float:
        """The relative time of a generation: its decisions, times `SPLIT_COST` if it splits."""
        return self.decisions * (SPLIT_COST if self.split else 1.0)


def parse_curriculum(text: str, rules: Rules | None = None) -> list[Stage]:
    """Return the stages of a curriculum, a text such as ``"10x10:22,10x12:14:4000:split"``.

    The entry of a stage has the form ``BOARD:GENERATIONS[:DECISIONS][:split]``. Without
    DECISIONS a stage has 0 decisions, which means that it has as many as the run.

    Args:
        text: The entries, separated by commas.
        rules: The rules of all stages, except for the size of the board; None: the default
            rules.
    """
    if not text.strip():
        return []
    stages = []
    for entry in text.split(","):
        entry_without_blanks = "".join(entry.split())
        match = _ENTRY.fullmatch(entry_without_blanks)
        if match is None:
            raise ValueError(
                "expected a curriculum as BOARD:GENERATIONS[:DECISIONS][:split],... such as "
                f"10x10:22,10x20:14:2000:split, got {entry.strip()!r} in {text!r}"
            )
        board, generations, decisions, split = match.groups()
        width, height = Rules.parse_board(board)
        stage_rules = replace(rules or Rules(), width=width, height=height)
        stages.append(Stage(stage_rules, int(generations), int(decisions or 0), bool(split)))
    return stages


def fit_to_board(text: str, width: int, height: int, *, ends_there: bool) -> str:
    """Return a curriculum for a board of another size.

    All boards get the width ``width``, and those that are higher than ``height`` this height.
    With ``ends_there`` the last board gets the height in any case.
    """
    stages = []
    for stage in parse_curriculum(text):
        rules = replace(stage.rules, width=width, height=min(stage.rules.height, height))
        stages.append(replace(stage, rules=rules))
    if ends_there:
        stages[-1] = replace(stages[-1], rules=Rules(width, height))
    return ",".join(map(str, stages))


@dataclass(frozen=True)
class Recipe(Settings):
    """The settings of a run and what follows from them; an error names a wrong setting.

    Raises:
        TypeError, ValueError: If a setting is wrong, or they do not fit one another.
    """

    def __post_init__(self) -> None:
        """Validate the settings, and convert those that can be written in several ways.

        Board, pieces, features, noise and curriculum get a canonical form.

        Raises:
            TypeError, ValueError: If a setting is wrong, or settings contradict each other.
        """
        # `_set` changes attributes. An assignment would raise, because the dataclass is frozen.
        self._set(check_settings(asdict(self)))
        noise = _canonical_noise(self.noise)
        curriculum = ",".join(map(str, parse_curriculum(self.curriculum)))
        controller = LinearController(self.features, (0.0,) * len(self.names), self.rules)
        # A controller with these features must be able to play on the board of every stage.
        # If it is not, `names_on` raises an error. Its result is not needed.
        for stage in self.stages:
            controller.names_on(stage.rules)
            # Without a decision the candidates would drop out by their order.
            check_integer("decisions before the first halving", self.rounds(stage)[0][0], 1)
        self._set(
            {
                "board": self.rules.board,
                "pieces": self.rules.pieces,
                "features": controller.features,
                "noise": noise,
                "curriculum": curriculum,
            }
        )
        check_integer("generations of all stages", self.total_generations, 1, _MOST_GENERATIONS)
        check_integer("elites of the population", self.elites, 2, self.population)
        if self.splits:
            self._check_splitting()

    def _check_splitting(self) -> None:
        """Raise ValueError if a stage with splitting has too few decisions or streams.

        The first round of every generation must be longer than the burn-in.
        """
        required = least_decisions(self.burn_in)
        # The first round is the shortest one; its first number are its decisions.
        shortest = min(self.rounds(stage)[0][0] for stage in self.stages if stage.split)
        if shortest < required or not 2 <= self.streams <= MOST_STREAMS:
            raise ValueError(
                f"expected stages with split to have at least {required} decisions in the "
                f"first round on 2 to {MOST_STREAMS} streams, got {shortest} on {self.streams} "
                f"in the curriculum {self.curriculum}: give another one, too"
            )

    def _set(self, values: Mapping[str, Any]) -> None:
        """Set attributes of this object, though the class is frozen."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def splits(self) -> bool:
        """Whether a stage has importance splitting."""
        return any(stage.split for stage in self.stages)

    @property
    def rules(self) -> Rules:
        """The rules of the game on the run's own board."""
        return Rules.of(*Rules.parse_board(self.board), self.rule, self.pieces)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the weights."""
        return weight_names(self.features, self.rules.width)

    @property
    def lookahead(self) -> Lookahead:
        """Which later pieces a decision considers."""
        return Lookahead.of(self.pieces_known)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the run, in order."""
        stages = parse_curriculum(self.curriculum, self.rules)
        if self.generations:
            stages.append(Stage(self.rules, self.generations, self.decisions))
        return tuple(
            replace(stage, decisions=stage.decisions or self.decisions) for stage in stages
        )

    @property
    def total_generations(self) -> int:
        """The number of generations of all stages together."""
        return sum(stage.generations for stage in self.stages)

    @cached_property
    def schedule(self) -> list[tuple[int, Stage]]:
        """For each generation, the index of its stage and the stage."""
        schedule = []
        for number, stage in enumerate(self.stages):
            schedule += [(number, stage)] * stage.generations
        return schedule

    def rounds(self, stage: Stage) -> list[tuple[int, int]]:
        """Return the rounds of a generation: pairs of decisions on every stream and candidates.

        After each round except the last one, half of the candidates drop out, but there are
        never fewer candidates than elites. At the end of the last round all decisions of the
        generation have been played; at the end of the round before, half of those after the
        burn-in, and so on.
        """
        burn_in = self.burn_in if stage.split else 0
        rounds = []
        played = 0
        for number in range(self.halvings + 1):
            # The decisions that have been played at the end of this round. A shift by n to the
            # right divides by 2^n.
            total = burn_in + (stage.decisions - burn_in >> self.halvings - number)
            candidates = -(-self.population >> number)  # Half of an odd number is rounded up.
            rounds.append((total - played, max(self.elites, candidates)))
            played = total
        return rounds

    def decisions_until(self, generation: int) -> int:
        """Return how many decisions a run makes in its first ``generation`` generations."""
        per_stream = 0
        for _, stage in self.schedule[:generation]:
            for decisions, candidates in self.rounds(stage):
                per_stream += decisions * (candidates + 1)  # The optimizer's mean plays, too.
        return self.streams * per_stream

    @property
    def title(self) -> str:
        """A line of text that describes the controller to be trained."""
        return f"{feature_label(self.features)}, population {self.population}, seed {self.seed}"

    def fingerprint(self) -> dict[str, Setting]:
        """Return the settings that determine the weights; the device is not among them."""
        return {
            name: value for name, value in asdict(self).items() if name not in _WITHOUT_EFFECT
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``config.json``."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def _canonical_noise(text: str) -> str:
    """Return the text of a schedule of additional variance, with its numbers as floats.

    Raises:
        ValueError: If a number is missing. Its default is the number of the literature, which
            is too large for weights of length 1.
    """
    # Where the text has no number, the parsed schedule has the default.
    noise = describe_variance_schedule(parse_variance_schedule(text))
    has_default_numbers = len(_NUMBER.findall(noise)) > len(_NUMBER.findall(text))
    if has_default_numbers:
        raise ValueError(
            f"expected noise with all its numbers, got {text!r}: {noise} of the "
            "literature is for weights that begin with a variance of 100, "
            "these have length 1"
        )
    return noise


def make_recipe(device: str, *layers: Mapping[str, Setting]) -> Recipe:
    """Return the recipe of a training run: the settings of a preset, changed by layers.

    A layer is a dictionary of settings, such as those of a config file or a command line. Later
    layers take precedence over earlier ones. Some settings also change related settings that
    the layer does not contain, see `_apply_layer`.

    Args:
        device: The name of the engine that plays: ``"cpu"``, ``"cuda"`` or ``"python"``.
        layers: The layers, from the first to the last.
    """
    # Merge all layers, to check them and to find the preset that they request.
    requested: dict[str, Any] = {}
    for layer in layers:
        requested |= check_settings(layer)
    preset = requested.get("preset", DEFAULT_PRESET)
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    # Later entries replace earlier ones with the same key.
    settings: dict[str, Any] = {
        "backend": AUTO,
        **PRESETS[preset],
        **_engine_settings(preset, device),
    }
    preset_names = PRESETS[preset].keys()
    boards = [index for index, layer in enumerate(layers) if "board" in layer]
    for index, layer in enumerate(layers):
        used = dict(layer)
        if index in boards[:-1]:
            # A later board replaces this one, which must not change the curriculum before.
            del used["board"]
        settings = _apply_layer(settings, used)
        # A layer with all settings, such as the config of a run, leaves nothing of the preset.
        if layer.keys() >= preset_names:
            preset = layer.get("preset", preset)
    if settings["backend"] == AUTO:
        # The optimizer's operators are in the same language as the engine, C++ or CUDA, so that
        # they need no other compiler. With the engine in Python, PyTorch's operators are used.
        settings["backend"] = device if device in BACKENDS else "torch"
    settings["preset"] = preset
    settings["device"] = device
    return Recipe(**settings)


def _engine_settings(preset: str, device: str) -> dict[str, Setting]:
    """Return the settings of a preset that are different on an engine.

    On a GPU the number of streams and the decisions of a score are proportional to the number
    of its multiprocessors.
    """
    presets_by_device = {"python": PYTHON_PRESETS, "cuda": CUDA_PRESETS}
    settings = dict(presets_by_device.get(device, {}).get(preset, {}))
    if device == "cuda" and settings and torch.cuda.is_available():
        multiprocessors = torch.cuda.get_device_properties().multi_processor_count
        scale = multiprocessors / CUDA_PRESETS_MULTIPROCESSORS
        splits = any(stage.split for stage in parse_curriculum(str(settings["curriculum"])))
        least_streams = LEAST_SPLIT_STREAMS if splits else 1
        settings["streams"] = max(least_streams, round(int(settings["streams"]) * scale))
        settings["score_decisions"] = max(1, round(int(settings["score_decisions"]) * scale))
    return settings


def read_settings(path: Path) -> dict[str, Setting]:
    """Return the settings in a config file, which may be some or all settings of a recipe.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is not valid; the message names the file.
    """
    try:
        values = json.loads(read_bytes(path).decode())
        if not isinstance(values, dict):
            raise ValueError(f"expected an object with settings, got {type(values).__name__}")
        for name, expected in (("format", FORMAT), ("version", VERSION)):
            if values.pop(name, expected) != expected:
                raise ValueError(f"expected a config file of {name} {expected}")
        return check_settings(values)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _apply_layer(settings: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings after a layer has replaced some of them, with related ones adjusted.

    A run begins with a curriculum, which is a list of stages with boards of their own. Then it
    has some generations on the board of the run. The adjustments are:

    - A layer with a curriculum but without generations sets the generations to 0.
    - A layer with generations but without a curriculum removes the curriculum.
    - A layer with decisions, but without a curriculum and generations, changes the decisions
      of all stages.
    - A layer with a population but without elites keeps the ratio of elites to population.
    - A layer with a board but without a curriculum fits the curriculum to this board, which is
      that of the last stage.
    """
    if "board" in layer and settings["curriculum"]:
        curriculum = fit_to_board(
            settings["curriculum"],
            *Rules.parse_board(layer["board"]),
            ends_there=not settings["generations"],
        )
        settings = {**settings, "curriculum": curriculum}
    merged = {**settings, **layer}
    if "curriculum" in layer:
        if "generations" not in layer:
            merged["generations"] = 0
    elif "generations" in layer:
        merged["curriculum"] = ""
    elif "decisions" in layer:
        # A stage with 0 decisions has as many as the run.
        stages = parse_curriculum(settings["curriculum"])
        entries = [str(replace(stage, decisions=0)) for stage in stages]
        merged["curriculum"] = ",".join(entries)
    if "population" in layer and "elites" not in layer:
        population = settings["population"]
        elites = -(-settings["elites"] * layer["population"] // population)  # Rounded up.
        merged["elites"] = max(2, elites)
    return merged
