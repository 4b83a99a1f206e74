"""Deferred host sync on a GPU: the host never waits, the device is never idle."""

import json
import math
import time

import pytest
import torch
from searches import ON_A_GPU, bits, nobody_waits

from cem import (
    Callback,
    CEMConfig,
    Checkpointer,
    CrossEntropyMethod,
    Evaluation,
    MetricsWriter,
    Trainer,
)

pytestmark = ON_A_GPU
NOISY = CEMConfig(variance_schedule="linear:0.5,20", smoothing=0.8)
TIMES = ("seconds", "elapsed_s", "evaluated/s")


def make(**options):
    return CrossEntropyMethod(
        torch.full((4,), 2.0), 1.0, 40, maximize=False, seed=3, device="cuda", **options
    )


def sphere(candidates, generation):
    fitness = candidates.square().sum(dim=1)
    metrics = {
        "stage": 1,
        "worst": fitness.max(),
        "evaluated": torch.full_like(fitness, 2).long().sum(),
    }
    return Evaluation(fitness, metrics, rates=["evaluated"])


def step(optimizer):
    candidates = optimizer.ask()
    optimizer.tell(candidates, candidates.square().sum(dim=1))


@pytest.fixture(scope="module")
def sleep():
    """Keep the device busy for some seconds, without waiting."""
    Trainer(
        make(), sphere, generations=4
    ).run()  # what is done once, such as loading kernels, is done
    cycles = 20_000_000
    torch.cuda._sleep(cycles)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    torch.cuda.synchronize()
    a_second = cycles / (began.elapsed_time(ended) / 1e3)
    return lambda seconds: torch.cuda._sleep(int(seconds * a_second))


def test_a_snapshot_brings_all_dtypes_and_devices():
    search = make()
    step(search)
    metrics = {
        "scalar": torch.tensor(2.5, device="cuda"),
        "count": torch.tensor([2**40 + 1], device="cuda"),
        "double": torch.full((1, 1), math.nan, dtype=torch.float64, device="cuda"),
        "there": torch.tensor(4, device=torch.cuda.device_count() - 1),
        "here": torch.tensor([1]),
        "number": 3,
    }
    snapshot = search.snapshot(Evaluation(torch.zeros(40), metrics))
    assert str(snapshot.metrics(1.0)) == str(
        {
            "scalar": 2.5,
            "count": 2**40 + 1,
            "double": math.nan,
            "there": 4,
            "here": 1,
            "number": 3,
        }
    )
    for name, value in snapshot.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert value.device.type == "cpu"
            assert value.equal(getattr(search.state, name).cpu())


@pytest.mark.timing
def test_snapshot_and_rewind_do_not_wait_and_a_snapshot_is_read_before_what_is_queued_behind_it(
    sleep,
):
    expected, rewound = make(bounds=(-3.0, 3.0)), make(bounds=(-3.0, 3.0))
    with nobody_waits():
        for optimizer in (expected, rewound):
            step(optimizer)
        snapshot = rewound.snapshot()
        sleep(1.0)
    behind = torch.cuda.Event()
    behind.record()
    assert snapshot.state_dict()["generation"] == 1
    assert snapshot.record().std_mean > 0
    assert snapshot.ready
    assert not behind.query()
    with nobody_waits():
        step(rewound)
        rewound.rewind(snapshot)
        for optimizer in (expected, rewound):
            step(optimizer)
    assert bits(rewound) == bits(expected)


def test_deferred_and_immediate_sync_leave_the_same_files(tmp_path, monkeypatch):
    outcomes = []
    for deferred in (False, True):
        monkeypatch.setattr(
            "cem.run.trainer.defers_sync", lambda device, deferred=deferred: deferred
        )
        folder = tmp_path / str(deferred)
        folder.mkdir()
        optimizer, checkpointer = make(config=NOISY), Checkpointer(folder)
        metrics = MetricsWriter(folder / "metrics.jsonl")
        Trainer(
            optimizer, sphere, generations=7, callbacks=[metrics], checkpointer=checkpointer
        ).run()
        lines = [json.loads(line) for line in metrics.path.read_text().splitlines()]
        timeless = [{name: line[name] for name in line if name not in TIMES} for line in lines]
        saved = checkpointer.load_latest().state["optimizer"]
        outcomes.append((timeless, bits(saved), bits(optimizer)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.timing
def test_the_device_works_on_the_next_generation_while_one_is_recorded_and_saved(
    sleep, tmp_path
):
    queued, busy = [], []

    def objective(candidates, generation):
        sleep(0.05)
        queued.append(torch.cuda.Event())
        queued[-1].record()
        return sphere(candidates, generation)

    class Busy(Callback):
        def on_generation(self, record):
            assert queued[record.generation - 1].query()
            busy.append(not queued[-1].query())

        def on_checkpoint(self, generation, state):
            busy.append(not queued[-1].query())

    trainer = Trainer(
        make(),
        objective,
        generations=6,
        callbacks=[Busy()],
        checkpointer=Checkpointer(tmp_path),
    )
    trainer.run()
    assert busy == [True] * 10 + [False] * 2


@pytest.mark.timing
def test_seconds_are_those_of_the_device_whenever_the_host_looks(sleep):
    records, ends = [], []
    pauses = [0.02, 0.1, 0.02, 0.05]

    class Slow(Callback):
        def on_generation(self, record):
            records.append(record)
            time.sleep(0.01)

    def objective(candidates, generation):
        sleep(pauses[generation])
        ends.append(torch.cuda.Event(enable_timing=True))
        ends[-1].record()
        return sphere(candidates, generation)

    trainer = Trainer(make(), objective, generations=4, callbacks=[Slow()])
    trainer.run()
    for before, after, record in zip(ends, ends[1:], records[1:], strict=False):
        assert record.seconds == pytest.approx(before.elapsed_time(after) / 1e3, abs=0.01)
    assert trainer.elapsed_s == pytest.approx(sum(record.seconds for record in records))
    for record in records:
        assert record.metrics["evaluated/s"] == record.metrics["evaluated"] / record.seconds


def test_fitness_on_the_cpu_is_fetched():
    optimizer = make()
    result = Trainer(optimizer, lambda x, g: sphere(x.cpu(), g), generations=3).run()
    assert (result.reason, optimizer.mean.device.type) == ("finished", "cuda")
