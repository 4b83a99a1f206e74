"""cem/tensorboard.py: the curves of a run, and what is said where tensorboard is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch

from cem import Checkpointer, CrossEntropyMethod, Evaluation, GenerationRecord, Trainer
from cem.run.callbacks import RunPlan
from cem.run.tensorboard import TensorBoardWriter

REASON = 'needs tensorboard: pip install -e ".[tensorboard]"'


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would show: (step, value) by curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(each.step, each.value) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def write(folder: Path, start: int, generations: range, value: float) -> None:
    writer = TensorBoardWriter(folder)
    writer.on_start(RunPlan(start, None, None))
    for generation in generations:
        writer.on_generation(GenerationRecord(generation, *[value] * 7, None, None))
    writer.on_end()


def test_a_run_becomes_a_curve_for_each_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=REASON)

    def objective(candidates: torch.Tensor, generation: int) -> Evaluation:
        fitness = candidates.sum(dim=1)
        return Evaluation(
            fitness, {"learned_mean_fitness": fitness.mean(), "games": 7}, rates=("games",)
        )

    optimizer = CrossEntropyMethod([0.0, 0.0], 1.0, 20, maximize=True)
    writer = TensorBoardWriter(
        tmp_path / "curves", ("holes", "wells"), texts={"settings": "seed 0"}
    )
    Trainer(
        optimizer,
        objective,
        generations=3,
        callbacks=[writer],
        checkpointer=Checkpointer(tmp_path / "checkpoints"),
    ).run()
    found = curves(tmp_path / "curves")
    assert set(found) >= {
        *(
            "fitness/best",
            "fitness/best so far",
            "fitness/elites",
            "fitness/learned_mean",
            "search/std",
        ),
        *("time/seconds per generation", "speed/games a second", "metrics/games"),
        *("mean/holes", "mean/wells", "std/holes", "std/wells"),
    }
    assert {tuple(step for step, _ in curve) for curve in found.values()} == {(1, 2, 3)}
    assert found["metrics/games"] == [(1, 7.0), (2, 7.0), (3, 7.0)]
    assert found["mean/holes"][-1][1] == pytest.approx(float(optimizer.mean[0]))


def test_what_a_resumed_run_plays_again_replaces_what_was_there(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=REASON)
    write(tmp_path, 0, range(1, 6), 1.0)
    write(tmp_path, 3, range(4, 6), 2.0)
    assert curves(tmp_path)["fitness/best"] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 2.0),
        (5, 2.0),
    ]


def test_without_tensorboard_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        ValueError, match=r'package tensorboard: pip install -e "\.\[tensorboard\]"'
    ):
        TensorBoardWriter(tmp_path / "curves").on_start(RunPlan(0, None, None))


def test_what_is_written_stands_under_its_tag_and_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = Mock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", package)
    writer = TensorBoardWriter(tmp_path, ["height"])
    writer.on_start(RunPlan(7, None, None))
    package.SummaryWriter.assert_called_once_with(
        str(tmp_path), purge_step=8
    )  # the first that it writes
    metrics = {"games": 3, "games/s": 1.5}
    mean, std = torch.tensor([1.0]), torch.tensor([2.0])
    writer.on_generation(
        GenerationRecord(8, 9.0, 5.0, 4.0, 3.0, 0.5, 2.0, 60.0, mean, std, metrics)
    )
    writer.on_checkpoint(8, {})
    writer.on_end()
    *scalars, flush, close = package.SummaryWriter.return_value.method_calls
    assert (flush, close) == (call.flush(), call.close())
    assert scalars == [
        call.add_scalar(tag, value, 8)
        for tag, value in {
            "fitness/best so far": 9.0,
            "fitness/best": 5.0,
            "fitness/elites": 4.0,
            "fitness/worst elite": 3.0,
            "search/std": 0.5,
            "time/seconds per generation": 2.0,
            "metrics/games": 3,
            "speed/games a second": 1.5,
            "mean/height": 1.0,
            "std/height": 2.0,
        }.items()
    ]
