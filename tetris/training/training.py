"""A training run: the cross-entropy method on one side, games on the other, and the files between them.

A linear controller plays the same whatever the length of its weight vector, so candidates are scaled to
length 1 before they play, and the optimizer is told those. All candidates of a generation play the same
streams (common random numbers), every generation has new ones, and no stream of a run is one that scores are
measured on. What is learned is the mean of the last distribution, or the average of late ones, scaled to
length 1: with a noisy fitness the best candidate is only the luckiest one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cem import (
    Callback,
    Checkpointer,
    CrossEntropyMethod,
    Evaluation,
    MetricsWriter,
    ProgressBar,
    StopRequest,
    TensorBoardWriter,
    Trainer,
)
from cem.tensorboard import check_tensorboard
from tetris import LinearController, RolloutResult, SplitResult, feature_names, rollout, split_rollout
from tetris.devices import check_gpu
from tetris.training.recipe import Recipe, Stage
from tetris.training.run_folder import RunFolder
from tetris.versions import versions

CHECKPOINT_SECONDS = 1.0
"""The least time between two checkpoints."""

MOST_LINES = 1e12
"""Lines per game of a candidate whose streams, split, met no end of a game at all."""


def piece_seed(seed: int) -> int:
    """Return the seed of the pieces of a run: the first 64 bits of SHA-256 of a text with the run's seed.

    So training meets no stream on which scores are measured: those have a seed as a person types it.
    """
    digest = hashlib.sha256(f"cem-tetris training pieces {seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def unit_length(weights: Tensor) -> Tensor:
    """Return weight vectors, shape (population, features), scaled to length 1; a zero vector stays zero."""
    return torch.nn.functional.normalize(weights, dim=1)


def learned_weights(state: Mapping[str, Any]) -> Tensor:
    """Return what the search has learned, out of its state: shape (features,), float64, of length 1."""
    return unit_length(state["averaged_mean"].double().unsqueeze(0))[0]


def lines_per_game(result: RolloutResult | SplitResult) -> Tensor:
    """Return lines per game ended, shape (population,), float64; where none has ended, half a game counts.

    So a candidate that survives is worth more than one that removes as many lines and then dies. With
    importance splitting it is the estimate, at most `MOST_LINES`.
    """
    if isinstance(result, SplitResult):
        return result.lines_per_game.clamp(max=MOST_LINES)
    lines, games = result.lines.double(), result.games.double()
    return torch.where(games > 0, lines / games.clamp(min=1), 2 * lines)


class LinesPerGame:
    """The objective of a run: maps (candidates, generation) to fitness, the same for the same arguments."""

    def __init__(self, recipe: Recipe, optimizer: CrossEntropyMethod, stop: StopRequest) -> None:
        """Take what it needs; the learned mean plays beside the candidates, to be watched."""
        self._recipe = recipe
        self._optimizer = optimizer
        self._stop = stop
        self._piece_seed = piece_seed(recipe.seed)

    def __call__(self, candidates: Tensor, generation: int) -> Evaluation:
        """Play a generation; where that is on a GPU nothing waits for it, and the metrics are read later.

        Raises:
            Interrupted: If the run is to stop.
        """
        number, stage = self._recipe.stage_at(generation)
        players = unit_length(torch.cat([candidates, self._optimizer.averaged_mean.unsqueeze(0)]))
        result = self._play(players, stage, generation)
        fitness = lines_per_game(result)
        metrics: dict[str, float | Tensor] = {
            "stage": number + 1,
            "board_width": stage.rules.width,
            "board_height": stage.rules.height,
            "mean_fitness": fitness[-1],
            "lines": result.lines.sum(),
            "games": result.games.sum(),
            "decisions": result.decisions.sum(),
        }
        return Evaluation(fitness[:-1], metrics, players[:-1], rates=("lines", "decisions"))

    def _play(self, players: Tensor, stage: Stage, generation: int) -> RolloutResult | SplitResult:
        recipe = self._recipe
        return (split_rollout if stage.split else rollout)(
            players,
            stage.rules,
            recipe.streams,
            stage.decisions,
            self._piece_seed,
            recipe.device,
            features=recipe.features,
            first_stream=generation * recipe.streams,
            check=self._stop.check,
        )


def tensorboard_writer(recipe: Recipe, folder: RunFolder) -> TensorBoardWriter:
    """Return what writes the curves of a run for TensorBoard.

    Raises:
        ValueError: If TensorBoard is not installed.
    """
    check_tensorboard()
    settings = "".join(f"| {name} | {value} |\n" for name, value in recipe.to_dict().items())
    return TensorBoardWriter(
        folder.tensorboard,
        feature_names(recipe.features, recipe.rules.width),
        texts={"settings": f"| setting | value |\n| --- | --- |\n{settings}"},
    )


class Training:
    """A run put together from its recipe and its folder.

    Attributes:
        recipe: The recipe.
        folder: The folder.
        optimizer: The search.
        trainer: The loop around it.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        stop: StopRequest,
        time_limit_s: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Put it together; nothing is played or written yet. ``callbacks`` come after the run's own.

        Raises:
            ValueError: If the backend or the device is not to be had.
        """
        self.recipe = recipe
        self.folder = folder
        if recipe.backend == "cuda":
            check_gpu("backend cuda", "--backend torch in a new run")
        self.optimizer = CrossEntropyMethod(
            torch.zeros(len(feature_names(recipe.features, recipe.rules.width))),
            1.0,
            recipe.population,
            maximize=True,
            num_elites=recipe.elites,
            noise=recipe.noise,
            averaging=recipe.averaging,
            backend=recipe.backend,
            device="cuda" if "cuda" in (recipe.device, recipe.backend) else "cpu",
            seed=recipe.seed,
        )
        self.trainer = Trainer(
            self.optimizer,
            LinesPerGame(recipe, self.optimizer, stop),
            generations=recipe.total_generations,
            time_limit_s=time_limit_s,
            callbacks=(
                MetricsWriter(folder.metrics, distribution=True),
                _ControllerWriter(self),
                ProgressBar(("lines/s",)),
                *callbacks,
            ),
            checkpointer=Checkpointer(
                folder.checkpoints, fingerprint=recipe.fingerprint(), interval_s=CHECKPOINT_SECONDS
            ),
            stop=stop,
        )

    @property
    def decisions(self) -> int:
        """The decisions of all generations so far."""
        return self.decisions_after(self.optimizer.generation)

    def controller(
        self,
        score: list[dict[str, Any]] | None = None,
        estimates: list[dict[str, Any]] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> LinearController:
        """Return what is learned so far.

        Args:
            score: Its measurements and those beside it, as plain values; None where there are none.
            estimates: What it and those beside it are estimated to play, where they hardly lose; likewise.
            state: The state of the optimizer that is meant, which ``trainer.elapsed_s`` belongs to; None: as
                it is now.
        """
        state = self.optimizer.state_dict() if state is None else state
        weights = learned_weights(state)
        provenance = {
            "made_by": "scripts/train_tetris.py",
            "config": self.recipe.to_dict(),
            "seed": self.recipe.seed,
            "generation": state["generation"],
            "generations": self.recipe.total_generations,
            "decisions": self.decisions_after(state["generation"]),
            "seconds": self.trainer.elapsed_s,
            "versions": versions(),
            "score": score,
            **({"estimates": estimates} if estimates else {}),
        }
        return LinearController(
            self.recipe.features,
            tuple(weights.tolist()),
            self.recipe.rules,
            self.folder.path.resolve().name,
            provenance,
        )

    def save_controller(
        self,
        score: list[dict[str, Any]] | None = None,
        estimates: list[dict[str, Any]] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> LinearController | None:
        """Write what is learned so far, see `controller`; before the first generation that is nothing.

        Raises:
            OSError: If it cannot be written.
        """
        state = self.optimizer.state_dict() if state is None else state
        if not state["generation"]:
            return None
        controller = self.controller(score, estimates, state)
        controller.save(self.folder.controller)
        return controller

    def decisions_after(self, generations: int) -> int:
        """Return the decisions of so many generations."""
        recipe, left, made = self.recipe, generations, 0
        for stage in recipe.stages:
            played = min(left, stage.generations)
            made += played * stage.decisions * recipe.streams * (recipe.population + 1)
            left -= played
        return made


class _ControllerWriter(Callback):
    """Keeps ``controller.json`` up with the checkpoints: a run can be looked at while it goes on."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Write it."""
        self._training.save_controller(state=state)
