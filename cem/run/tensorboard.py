"""TensorBoard: the curves of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from cem.core.snapshot import GenerationRecord
from cem.run.callbacks import Callback, RunPlan

# The tags of curves. The tags of rates begin with ``speed``, of other metrics ``metrics``.
_TAGS = {
    "generation_best": "fitness/best",
    "elite_mean": "fitness/elites",
    "elite_threshold": "fitness/worst elite",
    "learned_mean_fitness": "fitness/learned_mean",
    "best_fitness": "fitness/best so far",
    "std_mean": "search/std",
    "seconds": "time/seconds per generation",
}


class TensorBoardWriter(Callback):
    """Writes the curves of a run for TensorBoard.

    Fitness, mean standard deviation, seconds and the objective's metrics are written for every
    generation. The mean and standard deviation of each dimension are written with every
    checkpoint. The step of a curve is the generation. A resumed run replaces the generations
    that it repeats. The package tensorboard must be installed when the run starts.
    """

    def __init__(
        self,
        folder: str | Path,
        names: Sequence[str] = (),
        *,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the writer. Nothing is written before the run starts.

        Args:
            folder: The folder of the run for TensorBoard; created if missing.
            names: The names of the dimensions. Empty: the dimensions are numbered.
            texts: Texts in Markdown by title, such as the settings of the run.
        """
        self.folder = Path(folder)
        self._names = tuple(names)
        self._texts = dict(texts or {})
        self._writer: Any = None
        # The mean and the standard deviation of the newest record.
        self._rows: dict[str, Tensor] = {}

    def on_start(self, plan: RunPlan) -> None:
        """Open the files."""
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder), purge_step=plan.generation + 1)
        for title, text in self._texts.items():
            self._writer.add_text(title, text, plan.generation)

    def on_generation(self, record: GenerationRecord) -> None:
        """Write a generation."""
        self._rows = {"mean": record.mean, "std": record.std}
        for name, value in record.as_dict().items():
            if name not in ("generation", "elapsed_s"):
                self._writer.add_scalar(_tag_of(name), value, record.generation)

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Write the distribution, and flush to disk."""
        for group, row in self._rows.items():
            # Of a batch, the curves are means over the problems.
            values = row.reshape(-1, row.shape[-1]).mean(0).tolist()
            names = self._names or range(len(values))
            for name, value in zip(names, values, strict=True):
                self._writer.add_scalar(f"{group}/{name}", value, generation)
        self._writer.flush()

    def on_end(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _tag_of(name: str) -> str:
    """Return the tag of the curve for a number of a record."""
    if name in _TAGS:
        return _TAGS[name]
    return f"speed/{name[:-2]} a second" if name.endswith("/s") else f"metrics/{name}"


def check_tensorboard() -> None:
    """Raise ValueError with the way to install tensorboard, if it is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        remedy = 'pip install -e ".[tensorboard]", or pip install tensorboard'
        message = f"curves for TensorBoard need the package tensorboard: {remedy}"
        raise ValueError(message) from error
