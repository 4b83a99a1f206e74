"""One training run as a process of its own, with what it knew when: the controllers and the clock.

    python scripts/measure/timed_training.py SETTINGS BEGAN OUT [SECONDS]

SETTINGS is a JSON file of settings as ``--config`` takes them, BEGAN the time (``time.time()``) from which
seconds count, OUT the JSON file for what it knew, SECONDS the time after which training is cut off.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cem import Callback, StopRequest
from tetris.devices import choose_device
from tetris.training.recipe import make_recipe, read_settings
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training, learned_weights


class Knowledge(Callback):
    """Notes what is learned, a mean scaled to length 1, whenever a checkpoint is saved, and the time."""

    def __init__(self, began: float) -> None:
        """Take the time from which seconds count."""
        self._began = began
        self.moments: list[dict[str, Any]] = []

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Note it."""
        weights = learned_weights(state).tolist()
        seconds = time.time() - self._began
        self.moments.append({"seconds": seconds, "generation": generation, "weights": weights})


def main(settings: Path, began: float, out: Path, longest_s: float | None = None) -> None:
    """Train, until so many seconds after the beginning at most, and write."""
    given = read_settings(settings)
    recipe = make_recipe(choose_device(str(given.get("device", "auto"))), given)
    knowledge = Knowledge(began)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        left = None if longest_s is None else max(0.0, began + longest_s - time.time())
        training = Training(recipe, run, StopRequest(), left, callbacks=(knowledge,))
        with run.claimed(recipe):
            training.trainer.run()
    for moment in knowledge.moments:
        moment["decisions"] = training.decisions_after(moment["generation"])
    found = {
        "config": recipe.to_dict(),
        "training_seconds": training.trainer.elapsed_s,
        "decisions": training.decisions,
        "moments": knowledge.moments,
    }
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), *map(float, sys.argv[4:]))
