"""The training loop. How it ends, with host sync at once and deferred, is in test_deferred_sync.py."""

import json
import signal
import time

import pytest
import torch
from searches import Recorder, bits, sphere

from cem import (
    Callback,
    Checkpointer,
    CheckpointError,
    CrossEntropyMethod,
    Evaluation,
    MetricsWriter,
    Trainer,
)


def make(mean=(2.0, 2.0, 2.0, 2.0), **options):
    return CrossEntropyMethod(mean, 1.0, 40, maximize=False, **{"seed": 3, **options})


class TestLoop:
    def test_records_hold_the_statistics_and_the_metrics(self):
        optimizer, recorder = make(), Recorder()

        def objective(candidates, generation):
            return Evaluation(sphere(candidates), {"games": 7, "rate": torch.tensor(0.5)})

        Trainer(optimizer, objective, generations=3, callbacks=[recorder]).run()
        last = recorder.records[-1]
        statistics = optimizer.statistics()
        assert {name: getattr(last, name) for name in statistics} == statistics
        assert last.metrics == {"games": 7, "rate": 0.5}
        assert last.elite_threshold == optimizer.elite_fitness[-1]
        assert all(map(torch.equal, last.distribution, (optimizer.mean, optimizer.std)))
        assert last.elapsed_s == pytest.approx(sum(record.seconds for record in recorder.records))

    def test_generations_without_a_record_are_the_same_generations(self, tmp_path):
        states, recorders = [], []
        for every in (1, 3):
            optimizer, recorder = make(extra_variance="linear:1,5"), Recorder()
            checkpointer = Checkpointer(tmp_path / str(every), keep=100)
            for generations in (10, 14):
                trainer = Trainer(
                    optimizer,
                    lambda x, g: Evaluation(sphere(x), {"generation": g + 1}),
                    generations=generations,
                    callbacks=[recorder],
                    checkpointer=checkpointer,
                    record_every=every,
                )
                if checkpointer.paths():
                    trainer.resume()
                assert trainer.run().generation == generations
            states.append(bits(optimizer))
            recorders.append({record.generation: record for record in recorder.records})
            assert list(recorders[-1]) == sorted(checkpointer.paths())
        assert states[0] == states[1]
        assert list(recorders[0]) == list(range(1, 15))
        assert list(recorders[1]) == [3, 6, 9, 10, 12, 14]
        for generation, record in recorders[1].items():
            before = recorders[0][generation]
            assert (record.best_fitness, record.elite_mean) == (before.best_fitness, before.elite_mean)
            assert record.metrics == before.metrics == {"generation": generation}

    def test_a_stop_comes_after_the_generations_of_a_record(self):
        class Enough(Callback):
            def on_generation(self, record):
                trainer.stop.request()

        trainer = Trainer(make(), sphere, generations=20, callbacks=[Enough()], record_every=4)
        assert trainer.run().generation == trainer.optimizer.generation == 4


class TestStopping:
    @pytest.fixture(autouse=True, params=[False, True], ids=["immediate", "deferred"])
    def _both_ways_of_reading(self, request, monkeypatch):
        monkeypatch.setattr("cem.trainer.defers_sync", lambda device: request.param)

    def test_the_time_limit_interrupts_an_objective_that_checks(self):
        def objective(candidates, generation):
            while generation == 1:
                trainer.stop.check()
            return sphere(candidates)

        trainer = Trainer(make(), objective, time_limit_s=0.1)
        began = time.monotonic()
        assert trainer.run().reason == "time_limit"
        assert 0.1 <= time.monotonic() - began < 5
        assert trainer.optimizer.generation == 1
        assert trainer.stop.deadline is None

    def test_a_run_can_go_on_after_it_was_asked_to_stop(self):
        def asks(candidates, generation):
            if generation == 2:
                signal.raise_signal(signal.SIGINT)
            return sphere(candidates)

        trainer = Trainer(make(), asks, generations=5)
        first, second = trainer.run(), trainer.run()
        assert (first.reason, first.signum, first.generation) == ("signal", signal.SIGINT, 3)
        assert (second.reason, second.signum, second.generation) == ("finished", None, 5)
        trainer = Trainer(make(), sphere, generations=1)
        trainer.stop.request()
        assert [trainer.run().reason, trainer.run().reason] == ["requested", "finished"]


class TestResuming:
    def run_in_parts(self, folder, parts, options):
        folder.mkdir()
        for generations in parts:
            optimizer = make(**options)
            trainer = Trainer(
                optimizer,
                lambda x, g: Evaluation(sphere(x) + 0.1 * g, {"g": g}),
                generations=generations,
                callbacks=[MetricsWriter(folder / "metrics.jsonl", distribution=True)],
                checkpointer=Checkpointer(folder, fingerprint={"seed": 3}),
            )
            if Checkpointer(folder).paths():
                trainer.resume()
            trainer.run()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        timeless = [{k: v for k, v in line.items() if k not in ("seconds", "elapsed_s")} for line in lines]
        return bits(optimizer), timeless, [line["elapsed_s"] for line in lines]

    @pytest.mark.parametrize(
        "options",
        [
            {"extra_variance": "linear:0.5,20", "smoothing": 0.8},
            {"mean": torch.full((3, 4), 2.0), "covariance": "full"},
        ],
        ids=["one search", "a batch"],
    )
    def test_a_run_in_parts_is_bit_for_bit_the_run_in_one(self, tmp_path, options):
        *whole, _ = self.run_in_parts(tmp_path / "whole", [12], options)
        *parts, elapsed_s = self.run_in_parts(tmp_path / "parts", [1, 5, 5, 12], options)
        assert parts == whole
        assert [line["generation"] for line in parts[1]] == list(range(1, 13))
        assert elapsed_s == sorted(elapsed_s)

    def test_a_fresh_run_does_not_mix_with_an_old_one_and_resuming_needs_a_checkpointer(self, tmp_path):
        Trainer(make(), sphere, generations=2, checkpointer=Checkpointer(tmp_path)).run()
        with pytest.raises(CheckpointError, match="expected a folder without checkpoints for a fresh run"):
            Trainer(make(), sphere, generations=4, checkpointer=Checkpointer(tmp_path)).run()
        with pytest.raises(CheckpointError, match="expected a trainer with a checkpointer"):
            Trainer(make(), sphere).resume()

    def test_saves_keep_the_interval_and_the_last_state_is_always_saved(self, tmp_path):
        recorder, checkpointer = Recorder(), Checkpointer(tmp_path, interval_s=1000)
        Trainer(make(), sphere, generations=5, callbacks=[recorder], checkpointer=checkpointer).run()
        assert list(recorder.states) == list(checkpointer.paths()) == [5]
