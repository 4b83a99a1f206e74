import json
import os
import signal
import time

import pytest
import torch
from searches import bits

from cem import (
    Callback,
    Checkpointer,
    CheckpointError,
    CrossEntropyMethod,
    Evaluation,
    MetricsWriter,
    StopRequest,
    Trainer,
    minimize,
)


def make(**options):
    return CrossEntropyMethod(torch.full((4,), 2.0), 1.0, 40, maximize=False, **{"seed": 3, **options})


def sphere(candidates, generation):
    return candidates.square().sum(dim=1)


class Recorder(Callback):
    def __init__(self):
        self.calls = []
        self.records = []

    def on_start(self, plan):
        self.calls.append(("start", plan.generation, plan.generations, plan.time_limit_s))

    def on_generation(self, record):
        self.calls.append(("generation", record.generation))
        self.records.append(record)

    def on_checkpoint(self, generation, state):
        self.calls.append(("checkpoint", generation))

    def on_end(self):
        self.calls.append(("end",))


class TestLoop:
    def test_does_what_ask_and_tell_do_by_hand(self):
        trained, by_hand = make(), make()
        result = Trainer(trained, sphere, generations=6).run()
        for _ in range(6):
            by_hand.tell(sphere(by_hand.ask(), 0))
        assert bits(trained) == bits(by_hand)
        assert (result.reason, result.signum, result.generation) == ("finished", None, 6)

    def test_callbacks_hear_of_everything_in_order(self, tmp_path):
        recorder = Recorder()
        Trainer(
            make(),
            sphere,
            generations=2,
            callbacks=[recorder],
            checkpointer=Checkpointer(tmp_path),
            time_limit_s=60,
        ).run()
        assert recorder.calls == [
            ("start", 0, 2, 60.0),
            ("generation", 1),
            ("checkpoint", 1),
            ("generation", 2),
            ("checkpoint", 2),
            ("end",),
        ]

    def test_records_hold_the_statistics_and_the_metrics(self):
        optimizer, recorder = make(), Recorder()

        def objective(candidates, generation):
            return Evaluation(sphere(candidates, generation), {"games": 7, "rate": torch.tensor(0.5)})

        Trainer(optimizer, objective, generations=3, callbacks=[recorder]).run()
        last = recorder.records[-1]
        statistics = optimizer.statistics()
        assert {name: getattr(last, name) for name in statistics} == statistics
        assert last.metrics == {"games": 7, "rate": 0.5}
        assert last.elite_threshold == optimizer.elite_fitness[-1]
        assert all(map(torch.equal, last.distribution, (optimizer.mean, optimizer.std)))
        assert last.elapsed_s == pytest.approx(sum(record.seconds for record in recorder.records))

    @pytest.mark.parametrize("callbacks", [Recorder(), [Recorder(), None]])
    def test_what_is_no_callback_is_refused_by_name(self, callbacks):
        with pytest.raises(TypeError, match="expected callbacks as a sequence of Callback, got"):
            Trainer(make(), sphere, callbacks=callbacks)
        with pytest.raises(TypeError, match="expected callbacks as a sequence of Callback, got"):
            minimize(lambda x: x.square().sum(-1), torch.zeros(2), 1.0, callbacks=callbacks)

    def test_generations_without_a_record_are_the_same_generations(self, tmp_path):
        generations = 10
        states, recorders = [], []
        for every in (1, 3):
            optimizer, recorder = make(extra_variance="linear:1,5"), Recorder()
            checkpointer = Checkpointer(tmp_path / str(every), keep=100)
            result = Trainer(
                optimizer,
                lambda x, g: Evaluation(sphere(x, g), {"generation": g + 1}),
                generations=generations,
                callbacks=[recorder],
                checkpointer=checkpointer,
                record_every=every,
            ).run()
            assert (result.reason, result.generation) == ("finished", generations)
            states.append(bits(optimizer))
            recorders.append({record.generation: record for record in recorder.records})
            wanted = sorted({*range(every, generations + 1, every), generations})
            assert list(recorders[-1]) == sorted(checkpointer.paths()) == wanted
        assert states[0] == states[1]
        for generation, record in recorders[1].items():
            before = recorders[0][generation]
            assert (record.best_fitness, record.elite_mean) == (before.best_fitness, before.elite_mean)
            assert record.metrics == before.metrics == {"generation": generation}

    def test_a_batch_of_problems_is_trained_saved_and_resumed(self, tmp_path):
        def batch():
            return CrossEntropyMethod(
                torch.full((3, 4), 2.0), 1.0, 40, maximize=False, seed=3, covariance="full"
            )

        def objective(candidates, generation):
            return candidates.square().sum(dim=-1)

        whole, first, second = batch(), batch(), batch()
        recorder = Recorder()
        Trainer(whole, objective, generations=8, callbacks=[recorder]).run()
        assert recorder.records[-1].best_fitness == float(whole.best_fitness.min())
        assert recorder.records[-1].distribution[0].shape == (3, 4)
        for search in (first, second):
            trainer = Trainer(
                search,
                objective,
                generations=4 if search is first else 8,
                callbacks=[MetricsWriter(tmp_path / "metrics.jsonl", distribution=True)],
                checkpointer=Checkpointer(tmp_path / "checkpoints"),
            )
            if search is second:
                trainer.resume()
            trainer.run()
        assert bits(second) == bits(whole)
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 8

    def test_a_stop_comes_after_the_generations_of_a_record(self):
        optimizer = make()

        class Enough(Callback):
            def on_generation(self, record):
                trainer.stop.request()

        trainer = Trainer(optimizer, sphere, generations=20, callbacks=[Enough()], record_every=4)
        assert trainer.run().generation == optimizer.generation == 4

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"record_every": 0}, ValueError, "expected record_every >= 1, got 0"),
            ({"generations": -1}, ValueError, "expected generations >= 0, got -1"),
            ({"time_limit_s": -1}, ValueError, "expected time_limit_s finite and >= 0, got -1"),
        ],
    )
    def test_bad_options_are_refused(self, options, error, message):
        with pytest.raises(error, match=message):
            Trainer(make(), sphere, **options)


class TestStopping:
    @pytest.fixture(autouse=True, params=[False, True], ids=["immediate", "deferred"])
    def _both_ways_of_reading(self, request, monkeypatch):
        monkeypatch.setattr("cem.trainer.defers_sync", lambda device: request.param)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_lets_the_generation_finish_saves_and_says_so(self, tmp_path, number):
        def objective(candidates, generation):
            if generation == 3:
                os.kill(os.getpid(), number)
            return sphere(candidates, generation)

        before = signal.getsignal(number)
        optimizer = make()
        trainer = Trainer(optimizer, objective, checkpointer=Checkpointer(tmp_path, interval_s=1000))
        result = trainer.run()
        assert (result.reason, result.signum) == ("signal", number)
        assert result.generation == optimizer.generation == 4
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000004.json"]
        assert signal.getsignal(number) == before

    def test_the_time_limit_ends_the_run(self):
        optimizer = make()
        started = time.monotonic()
        result = Trainer(optimizer, sphere, time_limit_s=0.2).run()
        assert 0.2 <= time.monotonic() - started < 5
        assert result.reason == "time_limit"
        assert result.generation > 1

    def test_the_time_limit_interrupts_an_objective_that_checks(self):
        optimizer = make()

        def objective(candidates, generation):
            while generation == 1:
                trainer.stop.check()
            return sphere(candidates, generation)

        trainer = Trainer(optimizer, objective, time_limit_s=0.1)
        assert trainer.run().reason == "time_limit"
        assert optimizer.generation == 1
        assert trainer.stop.deadline is None

    def test_a_run_can_go_on_after_it_was_asked_to_stop(self):
        def asks(candidates, generation):
            if generation == 2:
                signal.raise_signal(signal.SIGINT)
            return sphere(candidates, generation)

        trainer = Trainer(make(), asks, generations=5)
        first, second = trainer.run(), trainer.run()
        assert (first.reason, first.signum, first.generation) == ("signal", signal.SIGINT, 3)
        assert (second.reason, second.signum, second.generation) == ("finished", None, 5)
        trainer = Trainer(make(), sphere, generations=1)
        trainer.stop.request()
        assert [trainer.run().reason, trainer.run().reason] == ["requested", "finished"]

    def test_handlers_of_a_shared_request_are_left_to_the_caller(self):
        before = signal.getsignal(signal.SIGINT)
        with StopRequest() as stop:
            inside = signal.getsignal(signal.SIGINT)
            Trainer(make(), sphere, generations=1, stop=stop).run()
            assert signal.getsignal(signal.SIGINT) == inside
        assert signal.getsignal(signal.SIGINT) == before


class TestResuming:
    def run_in_parts(self, folder, parts, **options):
        for generations in parts:
            optimizer = make(**options)
            trainer = Trainer(
                optimizer,
                lambda x, g: Evaluation(sphere(x, g) + 0.1 * g, {"g": g}),
                generations=generations,
                callbacks=[MetricsWriter(folder / "metrics.jsonl")],
                checkpointer=Checkpointer(folder, fingerprint={"seed": 3}),
            )
            if Checkpointer(folder).paths():
                trainer.resume()
            trainer.run()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        timeless = [{k: v for k, v in line.items() if k not in ("seconds", "elapsed_s")} for line in lines]
        return bits(optimizer), timeless, [line["elapsed_s"] for line in lines]

    def test_a_run_in_parts_is_bit_for_bit_the_run_in_one(self, tmp_path):
        options = {"extra_variance": "linear:0.5,20", "smoothing": 0.8}
        runs = []
        for name, parts in (("whole", [12]), ("parts", [1, 5, 5, 12])):
            (tmp_path / name).mkdir()
            runs.append(self.run_in_parts(tmp_path / name, parts, **options))
        assert runs[0][:2] == runs[1][:2]
        assert [line["generation"] for line in runs[1][1]] == list(range(1, 13))
        assert runs[1][2] == sorted(runs[1][2])

    @pytest.mark.parametrize("state", [{}, {"optimizer": 5}])
    def test_a_checkpoint_of_something_else_is_refused(self, tmp_path, state):
        Checkpointer(tmp_path).save(1, state)
        with pytest.raises(CheckpointError, match=r"checkpoint-000001.json: expected"):
            Trainer(make(), sphere, checkpointer=Checkpointer(tmp_path)).resume()

    def test_a_fresh_run_does_not_mix_with_an_old_one(self, tmp_path):
        Trainer(make(), sphere, generations=2, checkpointer=Checkpointer(tmp_path)).run()
        with pytest.raises(CheckpointError, match="expected a folder without checkpoints for a fresh run"):
            Trainer(make(), sphere, generations=4, checkpointer=Checkpointer(tmp_path)).run()

    def test_resuming_needs_a_checkpointer(self):
        with pytest.raises(CheckpointError, match="expected a trainer with a checkpointer"):
            Trainer(make(), sphere).resume()

    def test_saves_keep_the_interval_and_the_last_state_is_always_saved(self, tmp_path):
        recorder = Recorder()
        checkpointer = Checkpointer(tmp_path, interval_s=1000)
        Trainer(make(), sphere, generations=5, callbacks=[recorder], checkpointer=checkpointer).run()
        assert [call for call in recorder.calls if call[0] == "checkpoint"] == [("checkpoint", 5)]
        assert list(checkpointer.paths()) == [5]
