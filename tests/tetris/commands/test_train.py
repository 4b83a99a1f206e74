"""scripts/train_tetris.py: what it does and writes. The tests of stopping and resuming are
apart."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sample_runs import TINY, make_run, metrics_of

from cem import StopRequest
from cem.run.callbacks import MetricsWriter, RunPlan
from tetris import LinearController, Rules
from tetris.commands import train

Script = Callable[..., Any]


@pytest.fixture(autouse=True)
def _draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris.commands.train.draw", lambda training: None)


def _train(script: Script, folder: Path, *arguments: object) -> Any:
    ended = script("train_tetris", *TINY, "--generations", 3, *arguments, "--out", folder)
    assert ended.status == 0, ended.err
    return ended


def test_run_leaves_its_files(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    folder = tmp_path / "runs" / "a"
    _train(script, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("checkpoints", "config.json", "controller.json", "evolution.gif"),
        *("learning_curve.png", "metrics.jsonl", "report.html", "starts.jsonl"),
    ]
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert [line["generation"] for line in metrics_of(folder)] == [1, 2, 3]


def test_a_run_says_nothing_of_a_picture_for_which_nothing_is_installed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris.commands.train.find_spec", lambda name: None)
    ended = _train(script, tmp_path / "a")
    assert "matplotlib" not in ended.err
    assert not (tmp_path / "a" / "learning_curve.png").exists()


def test_a_full_disk_is_named_with_the_command_that_resumes(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = MetricsWriter.on_start

    class FullDisk(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    def start_on_full_disk(writer: MetricsWriter, plan: RunPlan) -> None:
        start(writer, plan)
        writer._file.close()
        writer._file = FullDisk()

    monkeypatch.setattr(MetricsWriter, "on_start", start_on_full_disk)
    folder = tmp_path / "a"
    ended = script("train_tetris", *TINY, "--generations", 3, "--out", folder)
    *_, note, error = ended.err.splitlines()
    assert ended.status == 2
    assert note.endswith(f"python -m tetris train --resume {folder}")
    assert error.endswith(f"{folder / 'metrics.jsonl'}: No space left on device")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_without_an_end_is_no_config(script: Script, device: str) -> None:
    ended = script("train_tetris", "--config", device)
    assert ended.status == 2
    assert f"{device}: expected a file of at most 256 MiB" in ended.err


def test_a_run_does_without_what_cannot_be_drawn(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("tetris.commands.train.draw_runs", lambda *_: None)
    monkeypatch.setattr("tetris.report.evolution.write_gif", lambda *_: 1 / 0)
    ended = _train(script, tmp_path / "a")
    assert f"no {tmp_path / 'a' / 'evolution.gif'}: ZeroDivisionError" in ended.err


def test_controller_tells_where_it_comes_from(script: Script, tmp_path: Path) -> None:
    _train(script, tmp_path / "a")
    controller = LinearController.load(tmp_path / "a" / "controller.json")
    assert sum(weight**2 for weight in controller.weights) == pytest.approx(1.0)
    assert (controller.name, controller.rules) == ("a", Rules(5, 6))
    provenance = controller.provenance
    assert provenance["config"] == json.loads((tmp_path / "a" / "config.json").read_text())
    assert (provenance["seed"], provenance["generation"], provenance["decisions"]) == (
        1,
        3,
        3 * 7 * 20,
    )
    assert provenance["seconds"] > 0
    assert {"python", "torch", "numpy", "cem-tetris"} <= provenance["versions"].keys()
    assert provenance["score"] is None


def test_run_is_reproduced_from_its_config(script: Script, tmp_path: Path) -> None:
    _train(script, tmp_path / "a", "--noise", "constant:0.1", "--averaging", 0.5, "--seed", 7)
    ended = script(
        "train_tetris", "--config", tmp_path / "a" / "config.json", "--out", tmp_path / "b"
    )
    assert ended.status == 0, ended.err
    assert metrics_of(tmp_path / "b") == metrics_of(tmp_path / "a")
    weights = [
        LinearController.load(tmp_path / name / "controller.json").weights for name in "ab"
    ]
    assert weights[0] == weights[1]


def test_command_line_beats_the_config(script: Script, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"seed": 5, "population": 9, "preset": "standard"}')
    _train(script, tmp_path / "a", "--config", tmp_path / "mine.json", "--seed", 6)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (config["seed"], config["population"], config["preset"]) == (6, 6, "standard")


def test_engines_give_the_same_run(script: Script, tmp_path: Path) -> None:
    arguments: tuple[object, ...] = (
        "--features",
        "dt",
        "--board",
        "6x8",
        "--streams",
        2,
        "--decisions",
        70,
    )
    # In Python a preset is another one, and backend "auto" is "torch".
    arguments += ("--noise", "none", "--averaging", 0, "--halvings", 2, "--backend", "torch")
    for device in ("python", "cpu"):
        _train(script, tmp_path / device, *arguments, "--device", device)
    assert metrics_of(tmp_path / "python") == metrics_of(tmp_path / "cpu")


def test_training_improves_the_controller(script: Script, tmp_path: Path) -> None:
    # Over seeds 1 to 20 the gain was 3.8 to 114 times, 35 in the median. Seed 1 is fixed; with
    # other samples, of another torch, the probability to fall below 2 is a few percent at most.
    arguments = ("--features", "dt", "--board", "10x8", "--population", 30, "--device", "cpu")
    _train(
        script,
        tmp_path / "a",
        *arguments,
        "--streams",
        2,
        "--decisions",
        400,
        "--generations",
        12,
    )
    first, *_, last = metrics_of(tmp_path / "a")
    assert last["learned_mean_fitness"] > 2 * first["elite_mean"]


def test_ends_with_its_score_beside_published_ones(script: Script, tmp_path: Path) -> None:
    ended = _train(script, tmp_path / "a", "--score-decisions", 640)
    rows = [line.split()[0] for line in ended.out.splitlines() if line]
    assert [row for row in rows if row in ("board", "learned", "bcts", "dt20")] == [
        *("board", "learned", "bcts", "dt20") * 3
    ]
    scores = LinearController.load(tmp_path / "a" / "controller.json").provenance["score"]
    assert [(score["board"], score["controller"]) for score in scores] == [
        (board, name)
        for board in ("10x10", "10x20", "5x6")
        for name in ("learned", "bcts", "dt20")
    ]
    played = {
        (each["board"], each["controller"]): each["decisions"]
        for each in scores
        if "measured" not in each
    }
    assert played == {
        **dict.fromkeys([("10x10", "learned"), ("10x20", "learned")], 640),
        **dict.fromkeys([("5x6", name) for name in ("learned", "bcts", "dt20")], 640),
    }
    assert [each["measured"]["machine"] for each in scores if "measured" in each] == [
        "NVIDIA H200"
    ] * 4
    *_, verdict, command = ended.out.splitlines()
    assert " lines per game on 5x6" in verdict
    assert command == f"to watch it play: python -m tetris watch --board 5x6 {tmp_path / 'a'}"


def test_score_is_that_of_evaluate_tetris(script: Script, tmp_path: Path) -> None:
    _train(script, tmp_path / "a", "--score-decisions", 640)
    (score,) = (
        score
        for score in LinearController.load(tmp_path / "a" / "controller.json").provenance[
            "score"
        ]
        if (score["controller"], score["board"]) == ("learned", "5x6")
    )
    arguments = ("--board", "5x6", "--decisions", 640, "--device", "python", "--json")
    (again,) = json.loads(script("evaluate_tetris", tmp_path / "a", *arguments).out)
    assert (score["games"], score["lines"]) == (again["games"], again["lines"])
    assert score["games"] > 0


def test_curves_for_tensorboard_are_in_the_folder_also_when_a_run_goes_on(
    script: Script, tmp_path: Path
) -> None:
    pytest.importorskip(
        "tensorboard", reason='needs tensorboard: pip install -e ".[tensorboard]"'
    )
    ended = _train(script, tmp_path / "a", "--tensorboard")
    assert f"note: curves: tensorboard --logdir {tmp_path / 'a' / 'tensorboard'}\n" in ended.err
    (curves,) = (tmp_path / "a" / "tensorboard").iterdir()
    assert b"fitness/elites" in curves.read_bytes()
    assert "tensorboard" not in json.loads((tmp_path / "a" / "config.json").read_text())
    assert script("train_tetris", "--resume", tmp_path / "a", "--tensorboard").status == 0


def test_default_folder_is_named_after_time_and_seed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert script("train_tetris", *TINY, "--generations", 1, "--seed", 9).status == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2
    assert all("-seed9" in name for name in names)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_gpu_a_run_is_reproducible(script: Script, tmp_path: Path) -> None:
    arguments = ("--features", "dt", "--board", "10x8", "--backend", "cuda")
    for name in ("a", "b"):
        ended = _train(script, tmp_path / name, *arguments, "--device", "cuda")
        assert "engine cuda, sampler cuda" in ended.err
    assert metrics_of(tmp_path / "a") == metrics_of(tmp_path / "b")


def test_folder_with_a_run_is_refused(script: Script, tmp_path: Path) -> None:
    _train(script, tmp_path / "a")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    ended = script("train_tetris", *TINY, "--out", tmp_path / "a")
    assert ended.status == 2
    assert f"take another, or go on with --resume {tmp_path / 'a'}" in ended.err
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()} == before


def test_a_run_that_knows_the_next_piece_is_scored_and_resumed_knowing_it(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris.evaluation.measurement.BURN_IN", 1)
    known = ("--pieces-known", 2, "--score-decisions", 8, "--streams", 1, "--decisions", 8)
    game = ("--rule", "clear-on-overflow", "--pieces", "ZS")
    ended = _train(script, tmp_path / "a", *known, *game, "--seed", 2)
    options = " ".join(("--board 5x6", *game, "--pieces-known 2"))
    assert f"tetris watch {options} {tmp_path / 'a'}" in ended.out
    controller = LinearController.load(tmp_path / "a" / "controller.json")
    assert {score["pieces_known"] for score in controller.provenance["score"]} == {2}
    assert controller.provenance["config"]["pieces_known"] == 2
    again = script("train_tetris", "--resume", tmp_path / "a")
    assert (again.status, again.err) == (0, "")
    _train(script, tmp_path / "b", *known[2:], "--seed", 2)
    assert metrics_of(tmp_path / "a") != metrics_of(tmp_path / "b")


def test_a_report_that_fails_is_a_note_and_the_run_is_kept(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("lines")

    monkeypatch.setattr(train, "write_report", broken)
    ended = _train(script, tmp_path / "a", "--score-decisions", 64)
    line, *_ = (line for line in ended.err.splitlines() if line.startswith("note: no "))
    assert line == f"note: no {tmp_path / 'a' / 'report.html'}: KeyError: 'lines'"
    assert LinearController.load(tmp_path / "a" / "controller.json").provenance["score"]
    assert not (tmp_path / "a" / "report.html").exists()


def test_a_change_of_board_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "a", curriculum="5x6:1:20,5x6:1:20,5x7:1:30")
    printed = [line for line in capsys.readouterr().err.splitlines() if "games are" in line]
    assert printed == ["from generation 3 on games are played on 5x7"]


def test_the_first_interrupt_is_answered_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with StopRequest() as stop:
        train.announce_interrupts(stop)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        assert "stopping after this step; Ctrl-C again ends at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err == ""
