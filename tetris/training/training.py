"""A training run: optimizer, objective and files.

The learned weights are the mean of the last distribution, or an average of the means of several
generations, scaled to length 1.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from cem import (
    Callback,
    CEMConfig,
    Checkpointer,
    CrossEntropyMethod,
    GenerationRecord,
    MetricsWriter,
    ProgressBar,
    StopRequest,
    Trainer,
)
from cem.core.backend import OPERATORS
from cem.core.state import AVERAGED_MEAN
from cem.run import ranks
from cem.run.tensorboard import TensorBoardWriter, check_tensorboard
from kernels.loader.extension import Extension, build_missing
from kernels.ops import library
from tetris import LinearController, Policy, Rollout, Streams
from tetris.play import engines
from tetris.play.devices import NATIVE, check_gpu, choose_device, fall_back
from tetris.record.numbers import format_lines
from tetris.training import reference_check
from tetris.training.objective import run_objective, unit_length
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder, new_folder, versions
from tetris.training.settings import DEFAULT_PRESET, Setting

CHECKPOINT_SECONDS = 1.0
"""The minimum time between two checkpoints, in seconds."""


def train(
    preset: str = DEFAULT_PRESET,
    *,
    seed: int = 1,
    out: str | Path | None = None,
    device: str = "auto",
    time_limit_s: float | None = None,
    **settings: Setting,
) -> LinearController:
    """Train a controller like ``python -m tetris train``, but without scores and a page.

    Examples:
        >>> from tetris.training import train
        >>> controller = train("quick", seed=1, out="runs/a")  # doctest: +SKIP

    Ctrl-C raises KeyboardInterrupt. ``python -m tetris train --resume FOLDER`` resumes the run.

    Args:
        preset: ``"quick"``, ``"standard"``, ``"record"`` or ``"sz"``.
        seed: The seed of the run, 0 to 2^64 - 1. The same seed gives the same controller.
        out: The folder of the run, new or empty; None: a folder in ``runs`` whose name contains
            the time and the seed.
        device: The engine that plays: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"python"``.
        time_limit_s: The time limit of training, in seconds; None: no limit.
        settings: Settings of a `Recipe` that replace those of the preset, such as
            ``board="8x16"``.

    Returns:
        The learned controller, which is also saved as ``controller.json`` in the folder.

    Raises:
        BuildError: If the engine cannot be built here.
        OSError: If the folder cannot be written.
        RuntimeError: If no generation ended within the time limit.
        TypeError, ValueError: If a setting is wrong, the folder is not empty, or there is no
            GPU.
    """
    all_settings = {**settings, "preset": preset, "seed": seed}
    recipe = choose_recipe(device, all_settings)
    folder = new_folder(None if out is None else Path(out), recipe.seed)
    # Compile and load the engine before anything is written.
    prepare_engine(recipe)
    training = Training(recipe, folder, time_limit_s)
    # No other process can train in the folder meanwhile.
    with folder.claimed(new_recipe=recipe):
        folder.add_start(recipe.device)
        training.trainer.run()
        controller = training.save_controller()
    if controller is None:  # The time limit was too short for a generation.
        raise RuntimeError(f"expected a generation within {time_limit_s} s, got none")
    return controller


def choose_recipe(
    requested: str, *layers: Mapping[str, Setting], instead: str = "--device cpu"
) -> Recipe:
    """Return the recipe of some settings, and choose the engine if ``auto`` is requested.

    Args:
        requested: The requested engine, or ``auto``.
        layers: The settings, as `make_recipe` takes them.
        instead: The options that the error recommends if there is no GPU.
    """
    recipe = make_recipe(choose_device(requested, instead), *layers)
    device = fall_back(requested, recipe.device, recipe.names, recipe.lookahead)
    return recipe if device == recipe.device else make_recipe(device, *layers)


def prepare_engine(recipe: Recipe) -> None:
    """Compile and load the libraries of a run, so that errors occur before a file is written.

    If a user's C++ header defines features, this function also checks that the engine plays
    with them as the user's Python functions do.
    """
    if recipe.backend == "cuda":
        check_gpu("backend cuda", "--backend torch in a new run")
    build_missing(_required_libraries(recipe))
    # The constructor of a rollout loads the engine. No game is played.
    policy = Policy([0.0] * len(recipe.names), recipe.features, recipe.lookahead)
    Rollout(policy, Streams(recipe.rules), recipe.device)
    if recipe.device in NATIVE:
        reference_check.check_references(recipe.features, recipe.rules, recipe.device)


def _required_libraries(recipe: Recipe) -> list[Extension]:
    """Return the C++ and CUDA libraries that a run has to compile or load.

    The engine has libraries unless it is in Python. The optimizer has libraries unless it uses
    the operators of PyTorch.
    """
    on_gpu = recipe.device == "cuda"
    libraries = []
    if on_gpu and recipe.splits:
        # Importance splitting resamples games. The C++ engine contains this operation, but a
        # GPU needs a library of its own for it.
        libraries.append(engines.resampling_extension())
    if recipe.device in NATIVE:  # "cpu" or "cuda"
        engine = engines.extension(recipe.names, recipe.lookahead)
        libraries += engines.libraries(engine, cuda=on_gpu)
    if recipe.backend != "torch":
        # An operator has a library in C++ and, for a GPU, another one in CUDA.
        kinds = NATIVE if recipe.backend == "cuda" else ("cpu",)
        for operator in OPERATORS:
            libraries += [library.extension(operator, kind) for kind in kinds]
    return libraries


def _build_optimizer(recipe: Recipe) -> CrossEntropyMethod:
    """Return the optimizer of a recipe: the cross-entropy method with additional variance.

    A candidate is a vector of weights, one per feature. The first distribution has mean 0 and
    standard deviation 1.
    """
    # The backend is "cpu" (operators in C++), "cuda" or "torch". PyTorch's operators run on the
    # GPU if the games are played there.
    plays_on_gpu = recipe.device == "cuda"
    uses_gpu = recipe.backend == "cuda" or (plays_on_gpu and recipe.backend != "cpu")
    # The recipe's noise is a schedule of the variance that is added in every generation.
    config = CEMConfig.classic(
        recipe.noise, num_elites=recipe.elites, mean_averaging=recipe.averaging
    )
    initial_mean = torch.zeros(len(recipe.names), dtype=torch.float32)
    initial_std = 1.0
    return CrossEntropyMethod(
        initial_mean,
        initial_std,
        recipe.population,
        maximize=True,
        config=config,
        backend=recipe.backend,
        device="cuda" if uses_gpu else "cpu",
        seed=recipe.seed,
    )


def tensorboard_writer(recipe: Recipe, folder: RunFolder) -> TensorBoardWriter:
    """Return the callback that writes the curves and the settings of a run for TensorBoard."""
    check_tensorboard()  # It raises if TensorBoard is not installed.
    settings = "| setting | value |\n| --- | --- |\n"
    for name, value in recipe.to_dict().items():
        settings += f"| {name} | {value} |\n"
    return TensorBoardWriter(folder.tensorboard, recipe.names, texts={"settings": settings})


class Training(Callback):
    """A training run: the optimizer, objective and trainer of a recipe in a folder."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        time_limit_s: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Set up the run; nothing is played or written yet.

        Args:
            recipe: The settings of the run.
            folder: The folder of the run.
            time_limit_s: The time limit of training, in seconds; None: no limit.
            callbacks: Additional callbacks, which are called after those of every run.
        """
        # Several processes, the ranks, may share the candidates of a generation. Every rank
        # needs at least one candidate.
        if recipe.population < ranks.count():
            count = ranks.count()
            raise ValueError(
                f"expected a candidate for each of {count} ranks, got {recipe.population}"
            )
        self.recipe = recipe
        self.folder = folder
        self.stop = StopRequest()
        self.optimizer = _build_optimizer(recipe)
        self.metrics = MetricsWriter(folder.metrics, distribution=True)
        progress_bar = ProgressBar(("lines/s",), number=format_lines)

        def check() -> None:
            """Update the progress bar, and raise if a signal asked to stop."""
            progress_bar.tick()
            self.stop.check()

        # Only a run with the same fingerprint can be resumed from a checkpoint. The fingerprint
        # contains the settings, and a digest of the features that a user defined.
        own_features = reference_check.fingerprint(recipe.names, recipe.rules)
        checkpointer = Checkpointer(
            folder.checkpoints,
            fingerprint=recipe.fingerprint() | own_features,
            interval_s=CHECKPOINT_SECONDS,
        )
        objective = run_objective(
            recipe,
            current_mean=lambda: self.optimizer.averaged_mean,
            check=check,
            stop=self.stop,
        )
        self.trainer = Trainer(
            self.optimizer,
            objective,
            generations=recipe.total_generations,
            time_limit_s=time_limit_s,
            callbacks=(self.metrics, self, progress_bar, *callbacks),
            checkpointer=checkpointer,
            stop=self.stop,
            # The relative cost of each generation, to estimate the remaining time.
            costs=[stage.cost for _, stage in recipe.schedule],
        )

    def on_generation(self, record: GenerationRecord) -> None:
        """Print a line when the board changes, because fitness depends on the board."""
        schedule = self.recipe.schedule
        # The boards of this generation and, if there is one, of the next.
        boards = [stage.rules.board for _, stage in schedule[record.generation - 1 :][:2]]
        if len(set(boards)) > 1:
            line = f"from generation {record.generation + 1} on games are played on {boards[1]}"
            with suppress(OSError, ValueError):  # The terminal may be closed.
                tqdm.write(line, file=sys.stderr)

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Write ``controller.json`` with every checkpoint, to show the progress of the run."""
        self.save_controller(state)

    def save_controller(
        self, state: Mapping[str, Any] | None = None, scores: Sequence[Mapping[str, Any]] = ()
    ) -> LinearController | None:
        """Write the learned controller to its file, and return it.

        Its weights are the mean of the optimizer's distribution, or the average of the means of
        several generations, scaled to length 1. Its provenance says how it was trained. The
        result is None before the end of the first generation.

        Args:
            state: A state of the optimizer; None: the current state.
            scores: Scores of the learned controller, and of published ones for comparison. They
                are written to the file. Scores with the key ``estimates`` were estimated, the
                others were measured in games.
        """
        recipe = self.recipe
        if state is None:
            state = self.optimizer.state_dict()
        if not state["generation"]:  # No generation has ended.
            return None
        # This row of the distribution is the averaged mean. Without averaging it is the mean of
        # the last generation.
        mean = state["distribution"][AVERAGED_MEAN].double()
        # `unit_length` takes and returns a matrix, here with a single row.
        weights = unit_length(mean.unsqueeze(0))[0].tolist()
        name = self.folder.path.resolve().name
        provenance = self._provenance(state["generation"], scores)
        controller = LinearController(
            recipe.features, tuple(weights), recipe.rules, name=name, provenance=provenance
        )
        if ranks.rank() == 0:  # If there are several processes, only the first one writes.
            controller.save(self.folder.controller)
        return controller

    def _provenance(
        self, generation: int, scores: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return how a controller of a generation was trained, with its scores."""
        recipe = self.recipe
        estimates = [dict(score) for score in scores if "estimates" in score]
        played = [dict(score) for score in scores if "estimates" not in score]
        provenance = {
            "made_by": "scripts/train_tetris.py",
            "config": recipe.to_dict(),
            "seed": recipe.seed,
            "generation": generation,
            "generations": recipe.total_generations,
            "decisions": recipe.decisions_until(generation),
            "seconds": self.trainer.elapsed_s,
            "versions": versions(),
            "score": played if scores else None,  # None: the controller was not scored.
        }
        if estimates:
            provenance["estimates"] = estimates
        return provenance
