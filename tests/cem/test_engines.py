"""What becomes of a candidate and of a search when an engine, a worker or a disk fails."""

import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from cem import (
    CheckpointError,
    CrossEntropyMethod,
    Float,
    Interrupted,
    StopRequest,
    maximize,
    minimize,
)
from cem.run import remote
from cem.run.engines import connect
from cem.run.evaluator import Evaluator
from cem.run.journal import Journal, read_evaluations
from cem.run.workers import make_task
from kernels.support import ranks

SEARCH = {"mean": [0.0, 0.0]}
POPULATION = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])


class WorkerDiedError(Exception):
    """What an engine says of a worker."""


class UnknownModuleError(Exception):
    """What Dask raises if a worker cannot import the module of the function."""

    def __init__(self, message):
        super().__init__(message)
        self.__cause__ = ModuleNotFoundError("No module named 'mine'")


class FakeEngine(Executor):
    """Evaluates the last of the waiting candidates first, when as many wait as it has workers.

    ``poison`` is x[0] of a candidate that ends its worker; then ``error`` is what its future
    raises, and if the engine breaks, those of all that wait. Every candidate is sent by pickle
    to a worker, which begins without the objective.
    """

    def __init__(self, workers=2, poison=None, error=WorkerDiedError, deaths=math.inf):
        self._max_workers, self.waiting, self.sent = workers, [], []
        self.poison, self.error, self.deaths = poison, error, deaths

    def submit(self, task, item):
        future = Future()
        future.cancel = self.refuse
        self.sent.append(task.objective is not None)
        self.waiting.append((future, task, item))
        threading.Thread(target=self.run, args=(len(self.waiting),)).start()
        return future

    def refuse(self):
        raise NotImplementedError("no engine of this kind cancels")

    def run(self, count):
        time.sleep(0 if count >= self._max_workers else 0.02)
        try:
            future, task, item = self.waiting.pop()
        except IndexError:
            return
        if item[3][0] != self.poison or self.deaths == 0:
            future.set_result(pickle.loads(pickle.dumps(task(item))))
            return
        self.deaths -= 1
        lost = [(future, task, item)]
        if issubclass(self.error, BrokenExecutor):
            lost, self.waiting = [*lost, *self.waiting], []
        for future, *_ in lost:
            future.set_exception(self.error("a worker died"))


def sphere(x):
    return float((x**2).sum())


def evaluator(function, **options):
    return Evaluator(function, maximize=False, **options)


class TestLostWorkers:
    @pytest.mark.parametrize("error", [WorkerDiedError, BrokenExecutor])
    def test_a_candidate_that_ends_its_workers_costs_itself_alone(self, error):
        engine = FakeEngine(4, poison=2.0, error=error)
        last_line = (
            "candidate 2 of generation 0 was lost with its worker, attempt 2 of 2: it has"
        )
        with (
            evaluator(sphere, workers=engine, catch=Exception) as evaluate,
            pytest.warns(RuntimeWarning, match=last_line),
        ):
            fitness = evaluate(POPULATION, 0).fitness
        assert fitness.tolist()[:2] + fitness.tolist()[3:] == [0.0, 1.0, 9.0]
        assert math.isnan(fitness[2])
        assert (evaluate.evaluations, evaluate.failures) == (4, 1)
        assert list(evaluate.failed) == [(0, 2, "lost", f"{error.__name__}: a worker died")]

    def test_a_candidate_whose_worker_died_is_evaluated_again(self):
        with (
            evaluator(sphere, workers=FakeEngine(poison=2.0, deaths=1)) as evaluate,
            pytest.warns(RuntimeWarning, match="attempt 1 of 2: it is evaluated again"),
        ):
            assert evaluate(POPULATION, 0).fitness.tolist() == [0.0, 1.0, 4.0, 9.0]
        assert not evaluate.failed
        engine = FakeEngine(poison=2.0, deaths=1)
        with (
            evaluator(sphere, workers=engine, retries=0, catch=WorkerDiedError) as evaluate,
            pytest.warns(RuntimeWarning, match="attempt 1 of 1: it has failed"),
        ):
            evaluate(POPULATION, 0)
        assert evaluate.failures == 1

    @pytest.mark.parametrize("error", [pickle.PicklingError, UnknownModuleError])
    def test_an_engine_that_cannot_send_the_function_ends_the_search_at_once(self, error):
        engine = FakeEngine(poison=2.0, error=error, deaths=9)
        with (
            evaluator(sphere, workers=engine, catch=Exception) as evaluate,
            pytest.raises(error),
        ):
            evaluate(POPULATION, 0)
        assert engine.deaths == 8

    def test_what_arrived_is_on_the_disk_before_an_error_is_raised(self, tmp_path):
        path = tmp_path / "evaluations.journal"
        with evaluator(sphere, workers=FakeEngine(4, poison=0.0)) as evaluate:
            evaluate.open_journal(path, SEARCH)
            with (
                pytest.warns(RuntimeWarning, match="attempt 1 of 2"),
                pytest.raises(WorkerDiedError),
            ):
                evaluate(POPULATION, 0)
        journal = Journal(path, SEARCH, 0)
        journal.close()
        assert sorted(journal.fitness) == [1.0, 4.0, 9.0]

    def test_an_engine_that_takes_nothing_more_ends_the_search(self):
        class Broken(FakeEngine):
            def submit(self, task, item):
                raise BrokenExecutor("broken")

        options = {"workers": Broken(), "catch": Exception, "budget": 40, "seed": 1}
        with pytest.raises(BrokenExecutor):
            minimize(sphere, np.ones(2), 1.0, **options)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_candidates_that_run_at_a_stop_are_recorded_within_drain_s(tmp_path, asynchronous):
    calls = []

    def stop_at_third(x):
        calls.append(x)
        number = len(calls)
        time.sleep(0.1)
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        return sphere(x)

    options = {"budget": 40, "population_size": 4, "seed": 1, "checkpoint": tmp_path}
    options["model"] = None
    with ThreadPoolExecutor(4) as threads:
        result = minimize(
            stop_at_third, np.ones(2), 1.0, workers=threads, drain_s=20.0,
            asynchronous=asynchronous, **options,
        )  # fmt: skip
    assert result.reason == "signal"
    _, values = result.evaluated
    assert len(values) == len(calls) == 4
    (path,) = tmp_path.glob("*/evaluations.journal")
    *_, fitness = read_evaluations(path)
    assert sorted(fitness) == sorted(values)


def test_a_journal_is_read_in_the_order_in_which_candidates_were_drawn(tmp_path):
    """A resumed model then gets them as that of a search that was never stopped."""
    path = tmp_path / "evaluations.journal"
    sleep = lambda x: time.sleep(x[0]) or x[0]  # noqa: E731
    with (
        ThreadPoolExecutor(2) as threads,
        Evaluator(sleep, maximize=False, workers=threads) as evaluate,
    ):
        evaluate.open_journal(path, SEARCH)
        evaluate(np.array([[0.2, 0.0], [0.0, 0.0]]), 0)
        assert [fitness for _, fitness in evaluate.remembered] == [0.0, 0.2]
    journal = Journal(path, SEARCH, 1)
    journal.close()
    assert [fitness for _, fitness in journal.read_earlier()] == [0.2, 0.0]


def test_the_result_lists_the_candidates_that_failed():
    def sphere_of_positive(x):
        if x[0] <= 0:
            raise ArithmeticError("x[0] is not positive")
        return sphere(x)

    options = {"vectorize": "loop", "model": None, "catch": ArithmeticError, "seed": 1}
    result = minimize(sphere_of_positive, np.ones(2), 1.0, budget=60, restarts=0, **options)
    assert len(result.failed) == result.failures > 0
    (generation, number, *reason) = result.failed[0]
    assert reason == ["failed", "ArithmeticError: x[0] is not positive"]
    assert f"failures, the last by {reason[1]}\n" in repr(result)
    points, values = result.evaluated
    index = generation * result.settings["population_size"] + number
    assert points[index][0] <= 0
    assert math.isnan(values[index])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_engine_that_cannot_cancel_is_left_at_the_time_limit(asynchronous):
    options = {"asynchronous": asynchronous, "time_limit_s": 0.3, "seed": 1}
    with ThreadPoolExecutor(2) as threads:
        threads.submit = lambda *item, submit=threads.submit: refusing(submit(*item))
        result = minimize(
            lambda x: time.sleep(0.01) or sphere(x), np.ones(2), 1.0, workers=threads, **options
        )
    assert result.reason == "time_limit"


def refusing(future):
    future.cancel = FakeEngine().refuse
    return future


@pytest.mark.filterwarnings("ignore:candidate .* was lost")
def test_the_result_is_that_of_one_process_whatever_the_engine_does():
    options = {"population_size": 4, "budget": 40, "restarts": 0, "seed": 1}
    expected = minimize(sphere, np.ones(2), 1.0, workers=map, **options)
    for engine in (FakeEngine(3), FakeEngine(3, poison=1.0, deaths=1, error=BrokenExecutor)):
        result = minimize(sphere, np.ones(2), 1.0, workers=engine, **options)
        assert (result.x == expected.x).all()
        assert result.history == expected.history


class TestAsynchronous:
    options = MappingProxyType(
        {"population_size": 8, "asynchronous": True, "restarts": 0, "seed": 1}
    )

    def test_no_more_candidates_than_the_budget_are_evaluated_and_all_count(self):
        calls = []
        for drain_s in (0.0, 10.0):
            calls.clear()
            with ThreadPoolExecutor(64) as threads:
                result = minimize(
                    lambda x: calls.append(x) or time.sleep(0.001) or sphere(x),
                    np.ones(2), 1.0, budget=100, workers=threads, drain_s=drain_s,
                    **self.options,
                )  # fmt: skip
            assert result.evaluations == len(calls) <= 100
            assert drain_s == 0.0 or result.evaluations == 100

    def test_a_restart_that_the_budget_has_no_room_for_ends_the_call(self):
        options = {**self.options, "restarts": None, "budget": 400, "workers": FakeEngine(4)}
        result = minimize(sphere, np.full(2, 2.0), 1.0, **options)
        assert result.evaluations <= 400
        assert result.reason in ("budget", "restarts_agree")

    def test_an_engine_that_does_not_know_its_workers_is_told_how_many_run(self):
        engine = FakeEngine(4)
        engine._max_workers = 0
        with pytest.raises(ValueError, match="running="):
            minimize(sphere, np.ones(2), 1.0, budget=40, workers=engine, **self.options)
        result = minimize(
            sphere, np.ones(2), 1.0, budget=40, workers=engine, running=3, **self.options
        )
        assert result.evaluations == 40
        assert max(len(engine.waiting), 1) <= 3

    def test_a_stop_is_seen_between_two_candidates(self):
        stop, asked = StopRequest(), []

        def ask(count):
            asked.append(count)
            stop.request()
            return np.zeros((count, 2))

        with evaluator(sphere, workers=FakeEngine(1000), stop=stop) as evaluate:
            optimizer = CrossEntropyMethod(np.zeros(2), 1.0, 4, maximize=False)
            optimizer.ask = ask
            objective = evaluate.in_any_order(optimizer)
            with pytest.raises(Interrupted):
                objective(np.zeros((4, 2)), 0)
            assert not evaluate._pool.count


def test_idle_workers_are_mentioned_once():
    options = {"budget": 40, "population_size": 4, "seed": 1}
    for model, what in ((None, "populations of 4"), ("auto", "half of populations of 4")):
        with pytest.warns(RuntimeWarning, match=f"8 workers evaluate {what}") as caught:
            minimize(sphere, np.ones(2), 1.0, workers=FakeEngine(8), model=model, **options)
        assert len(caught) == 1


class TestFolder:
    options = MappingProxyType({"vectorize": "loop", "model": None, "restarts": 0})

    def test_one_process_searches_in_a_folder(self, tmp_path):
        def second(x):
            minimize(sphere, np.ones(2), 1.0, checkpoint=tmp_path, budget=40)

        with pytest.raises(CheckpointError, match="another process is searching there"):
            minimize(second, np.ones(2), 1.0, checkpoint=tmp_path, budget=40, **self.options)

    def test_another_seed_or_space_is_another_search(self, tmp_path):
        space = {"x": Float(-1, 1)}
        options = {"checkpoint": tmp_path, "budget": 40, "model": None}
        minimize(square, space, seed=1, **options)
        with pytest.raises(CheckpointError, match="expected seed = 2, got 1"):
            minimize(square, space, seed=2, **options)
        with pytest.raises(CheckpointError, match="another run"):
            minimize(square, {"x": Float(-2, 1)}, **options)
        (tmp_path / "search.json").write_text('{"se')
        with pytest.raises(CheckpointError, match=r"search.json: torn or damaged"):
            minimize(square, space, seed=1, **options)

    @pytest.mark.parametrize("model", ["auto", None])  # with the journal of a descent, and none
    def test_another_direction_range_or_tolerance_is_another_search(self, tmp_path, model):
        options = {"bounds": (-2, 2), "constraints": np.sum, "tolerance": 0.5, "model": model}
        options.update(vectorize="loop", budget=20, seed=1, checkpoint=tmp_path)
        minimize(sphere, np.ones(2), 1.0, **options)
        for change in ({"bounds": (-1, 1)}, {"integers": [0]}, {"tolerance": 1e-9}):
            with pytest.raises(CheckpointError, match="to another run"):
                minimize(sphere, np.ones(2), 1.0, **options | change)
        with pytest.raises(CheckpointError, match="another run: expected maximize = True"):
            maximize(sphere, np.ones(2), 1.0, **options)

    def test_a_larger_budget_or_other_workers_go_on_with_the_population_of_the_folder(
        self, tmp_path
    ):
        options = {"checkpoint": tmp_path, "restarts": 0, "model": None, "seed": 1}
        first = minimize(sphere, np.ones(9), 1.0, workers=map, budget=100, **options)
        with ThreadPoolExecutor(2) as threads:
            second = minimize(sphere, np.ones(9), 1.0, workers=threads, budget=400, **options)
        sizes = set(second.history["population_size"])
        assert sizes == set(first.history["population_size"]) == {5}
        assert second.evaluations == 400
        assert second.history["best_fitness"][:20] == first.history["best_fitness"]

    def test_a_damaged_record_is_named_with_the_way_out(self, tmp_path):
        path = tmp_path / "evaluations.journal"
        with evaluator(sphere, vectorize="loop") as evaluate:
            evaluate.open_journal(path, SEARCH)
            evaluate(POPULATION, 0)
        content = bytearray(path.read_bytes())
        size = 8 + 8 + 8 + 1 + 2 * 8 + 4
        content[-2 * size] ^= 1  # in the third of four records
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="record 3 of 4 is damaged: 'truncate -s"):
            Journal(path, SEARCH, 0)
        os.truncate(path, len(content) - 2 * size)
        journal = Journal(path, SEARCH, 0)
        journal.close()
        assert journal.fitness.tolist() == [0.0, 1.0]

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
    def test_a_full_disk_is_named_with_the_file(self, tmp_path):
        path = tmp_path / "evaluations.journal"
        with evaluator(sphere, vectorize="loop") as evaluate:
            journal = evaluate.open_journal(path, SEARCH)
            journal._file.close()
            journal._file = Path("/dev/full").open("ab")  # noqa: SIM115
            with pytest.raises(OSError, match=r"the same call.*goes on"):
                evaluate(POPULATION, 0)

    def test_every_rank_writes_a_file_and_reads_those_of_all(self, tmp_path, monkeypatch):
        path = tmp_path / "evaluations.journal"
        for rank in (0, 1):
            monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
            with evaluator(sphere, vectorize="loop") as evaluate:
                evaluate.open_journal(path, SEARCH)
                evaluate(POPULATION[2 * rank :][:2], 0)
        assert (tmp_path / "evaluations-1.journal").exists()
        monkeypatch.setattr(ranks, "rank", lambda: 0)
        with evaluator(None, vectorize="loop") as evaluate:
            evaluate.open_journal(path, SEARCH)
            assert evaluate(POPULATION, 0).fitness.tolist() == [0.0, 1.0, 4.0, 9.0]


def square(x):
    return x["x"] ** 2


class TestRemote:
    def test_the_objective_is_sent_once_to_each_worker(self):
        engine = FakeEngine(2)
        with evaluator(sphere, workers=engine) as evaluate:
            for generation in range(5):
                evaluate(POPULATION, generation)
        # The first two candidates bring it; two others came before them, and came again.
        assert sum(engine.sent) <= 4

    def test_a_worker_that_lacks_the_objective_gets_it(self):
        engine = FakeEngine(1)
        with evaluator(sphere, workers=engine) as evaluate:
            evaluate(POPULATION, 0)
            vars(sys)["_cem_objectives"].clear()  # a new worker
            assert evaluate(POPULATION, 1).fitness.tolist() == [0.0, 1.0, 4.0, 9.0]
        assert sum(engine.sent) >= 2

    def test_a_worker_needs_numpy_alone(self):
        task = make_task((np.sum, 1, ()), "key")
        program = (
            "import pickle, sys; task, item = pickle.loads(bytes.fromhex(sys.argv[1]));"
            "print(task(item), 'torch' in sys.modules, 'cem' in sys.modules)"
        )
        item = pickle.dumps((task, (0, None, 0, np.ones(2)))).hex()
        done = subprocess.run(
            [sys.executable, "-c", program, item], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "('DONE', 2.0) False False"

    def test_a_worker_forgets_old_objectives(self):
        vars(sys).pop("_cem_objectives", None)
        for key in "abcdefgh":
            make_task((sphere, 1, ()), key)((0, None, 0, np.ones(2)))
        assert len(vars(sys)["_cem_objectives"]) == remote.NUM_REMEMBERED


def test_an_unknown_engine_is_refused_and_a_map_is_none():
    with pytest.raises(ValueError, match="did you mean 'dask'"):
        connect("dusk")
    assert connect(map) is None


class TestAskAndTell:
    def test_candidates_asked_one_by_one_are_those_asked_at_once(self):
        one, all_at_once = (optimizer(dim=3) for _ in range(2))
        expected = all_at_once.ask(40)
        asked = torch.cat([one.ask(count) for count in (1, 1, 3, 1, 20, 14)])
        assert torch.equal(asked, expected)

    def test_told_candidates_of_an_incomplete_population_are_saved(self):
        first, second, whole = (optimizer(dim=3) for _ in range(3))
        x = first.ask(8)
        first.tell(x[:7], x[:7].sum(1))
        second.load_state_dict(copy_of(first.state_dict()))
        assert torch.equal(second.ask(1), x[7:])
        second.tell(x[7:], x[7:].sum(1))
        whole.tell(x, x.sum(1))
        assert (second.generation, second.mean.tolist()) == (1, whole.mean.tolist())

    def test_candidates_told_out_of_order_are_not_asked_again(self):
        first, second = (optimizer(dim=3) for _ in range(2))
        x = first.ask(4)
        first.tell(x[2:], x[2:].sum(1))
        second.load_state_dict(copy_of(first.state_dict()))
        assert torch.equal(second.ask(1), optimizer(dim=3).ask(5)[4:])

    def test_threads_may_ask_and_tell(self):
        search = optimizer(dim=3)

        def work(_):
            for _ in range(40):
                x = search.ask(1)
                search.tell(x, x.square().sum(1))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert search.generation == 8 * 40 // search.population_size

    def test_an_optimizer_is_copied_by_pickle(self):
        search = optimizer(dim=3)
        assert torch.equal(pickle.loads(pickle.dumps(search)).ask(), search.ask())


def optimizer(dim):
    return CrossEntropyMethod(torch.zeros(dim), 1.0, 8, maximize=False, seed=1)


def copy_of(state):
    return pickle.loads(pickle.dumps(state))


def program(number):
    """Return a program of docs/cluster.md."""
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[number]


@pytest.mark.parametrize(
    ("engine", "workers"),
    [
        ("distributed", "client"),
        ("loky", "'loky'"),
        ("loky", "__import__('loky')"),
        pytest.param("ray", "'ray'", marks=pytest.mark.slow),
    ],
)
def test_an_engine_runs_the_program_of_the_page(engine, workers, tmp_path, monkeypatch):
    pytest.importorskip(engine)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)  # draws the seed that the program leaves open
    text = program(0)
    if workers != "client":
        text = re.sub(".*Client.*", "", text).replace("workers=client", f"workers={workers}")
    names = {"__name__": "__main__"}
    exec(text, names)
    if "client" in names:
        names["client"].shutdown()
    result = names["result"]
    assert (result.evaluations, result.failures) == (400, 0)
    assert result.fun < 1e-2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:candidate .* was lost")
def test_dask_goes_on_without_the_candidate_that_ends_its_workers():
    distributed = pytest.importorskip("distributed")

    def end_at_two(x):
        if x[0] == 2.0:
            os._exit(1)
        return float((x**2).sum())

    # A worker that is absent after this time, by default 15 seconds, would be closed for good.
    absent = pytest.importorskip("dask").config.set(
        {"distributed.deploy.lost-worker-timeout": "100 ms"}
    )
    stop = StopRequest()
    stop.deadline = time.monotonic() + 120
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        absent,
        distributed.Client(**options) as client,
        evaluator(end_at_two, workers=client, catch=Exception, stop=stop) as evaluate,
    ):
        fitness = evaluate(POPULATION, 0).fitness
    assert np.isnan(fitness[2])
    assert [*fitness[:2], fitness[3]] == [0.0, 1.0, 9.0]


def test_a_search_of_one_rank_is_distributed():
    names = {"objective": lambda x: (x - 3.0).square().sum(-1), "mean": torch.zeros(2)}
    names |= {"std": 1.0, "minimize": minimize}
    exec(program(1), names)
    assert torch.allclose(names["result"].x, torch.full((2,), 3.0), atol=1e-3)


class TestLaunchers:
    @pytest.mark.parametrize(
        "names",
        [
            ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
            ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
            ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"),
        ],
    )
    def test_the_ranks_of_other_launchers_are_recognised(self, monkeypatch, names):
        monkeypatch.setattr(os, "environ", dict.fromkeys(names, "2") | {names[1]: "1"})
        ranks._set_torchrun_variables()
        assert {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")} == {
            "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        }  # fmt: skip

    def test_ranks_on_several_hosts_have_to_know_the_first(self, monkeypatch):
        step = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "0"}
        monkeypatch.setattr(os, "environ", {**step, "SLURM_STEP_TASKS_PER_NODE": "2(x3)"})
        with pytest.raises(ValueError, match="expected MASTER_ADDR and MASTER_PORT"):
            ranks._set_torchrun_variables()
