"""Every measurement of the table, at tiny sizes: it runs, and its result has the form of a
result."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from measure import (
    coco,
    env,
    equality,
    operators,
    practice,
    provenance,
    reproduce,
    rollout,
    sampling,
    sanitizers,
    table,
    timing,
    training,
)
from measure.provenance import RESULTS, Measured
from measure.table import MEASUREMENTS
from measure.timing import Plan

from kernels import CompilerMissingError
from kernels.loader.toolchain import find_compiler
from tetris import Lookahead, Rollout, Rules, Streams, published

Script = Callable[..., Any]
KEYS = ["commit", "dirty", "date", "command", "machine", "versions", "figures", "data"]
BY_HAND = ("first_run", *table.TOOLS)  # it compiles all anew; they run pytest
NEEDED = {"coco": "cocoex", "control": "stable_worldmodel"}
"""The packages of measurements that not every installation has."""
NEEDS_COCO = pytest.mark.skipif(find_spec("cocoex") is None, reason="needs coco-experiment")

_ONCE, _LITTLE = Plan(1, 1, 0), "--repeats 1 --seconds 0.001"
_PLAN = reproduce.Plan("dt", "6x6", seeds=1, generations=1, limit=100, score_decisions=640)
_COCO = "--functions 1 9 --instances 41-42 --budget 20"
WORDS: dict[str, str] = {
    "rollout": f"dt20 --board 6x6 {_LITTLE}",
    "env": f"--num-envs 2 {_LITTLE}",
    "peers": f"--num-envs 2 {_LITTLE}",
    "coco": f"{_COCO} --searches cem --dims 2 3",
    "asynchronous": f"{_COCO} --searches cem cem_asynchronous_8 --dims 2 --checkpoints 20",
    "bbob": f"{_COCO} --searches cem --dims 2 --jobs 2",
    "bbob-noisy": f"{_COCO} --searches cem --dims 2",
    "bbob-constrained": f"{_COCO} --searches cem --dims 2",
    "bbob-mixint": f"{_COCO} --searches cem --dims 5",
    "practice": "--problems truss",
    "reproduce": "published --quick",
}
"""Arguments of measurements."""

TINY: dict[str, dict[str, Any]] = {
    "sampling": {
        **{"CPU": (10,), "ARTICLE": (10,), "LARGE": (100,), "SAMPLES": 16},
        "PLANS": dict.fromkeys(sampling.PLANS, _ONCE),
    },
    "generation": {
        "SHAPES": dict.fromkeys(("cpu", "cuda"), ((20, 4),)),
        "GENERATIONS": 20,
        "REPEATS": 1,
    },
    "discrete": {
        **{
            "PAIRS": 2,
            "VALUES": 3,
            "SEEDS": 1,
            "TPE_SEEDS": 1,
            "EARLY": 20,
            "TPE_BUDGET": 20,
            "BUDGET": 200,
        },
        **{
            "BITS": 4,
            "CATEGORIES": (3, 4),
            "ITEMS": 5,
            "POPULATION": 16,
            "ELITES": 3,
            "PLAN": _ONCE,
        },
    },
    "cluster": {
        **{"OUTSTANDING": 20, "FEEDING_BUDGETS": {2: 100}, "RECORDS": 20},
        **{"WORKERS": 4, "MEAN_S": 0.001, "CANDIDATES": 40},
        **{"SIMULATED_WORKERS": 20, "ROUNDS": 3},
    },
    "operators": {
        **{"ELEMENTS": {"cpu": 64, "cuda": 64}, "ROUNDS": 1, "DTYPES": (torch.float32,)},
        "SIZES": {(2, 3, 4): _ONCE},
    },
    "rollout": {"ENGINES": [e._replace(streams=2, warm_up=2) for e in rollout.ENGINES]},
    "equality": {
        "COUNTS": {Lookahead.NONE: 4},
        "WIDTHS": {"dt": (6, 10)},
        "SHAPES": ((2, 3, 40), (3, 1, 60)),
    },
    "env": {"GPU_ENVS": 2, "GPU_FEATURE_ENVS": 2},
    "reproduce": {
        "PLANS": {
            f"noisy_ce_{x}_{y}": _PLAN
            for x in ("bcts", "bertsekas")
            for y in ("10x10", "10x20")
        },
        **{"PUBLISHED": ["dt20"], "decisions_for": lambda *given: 640},
        **{"QUICK_SECONDS": 0.01, "SECONDS": 0.01},
    },
    "practice": {"STARTS": 1, "SEARCHES": {"cem": practice.SEARCHES["cem"]}},
    "peers": {"SHAPES": ((20, 2),)},
    "latent_models": {"_EPISODES": 300, "_STEPS": 3},
    # Threads, because processes would have the constants of the module.
    "plans": {"CELLS": ((8, 2),), "_PROBLEMS": 4, "ProcessPoolExecutor": ThreadPoolExecutor},
    "training": {
        "NUM_SEEDS": 1,
        "FLAGS": [
            *(
                "--curriculum=",
                "--board=6x6",
                "--generations=1",
                "--population=16",
                "--elites=4",
            ),
            *("--streams=2", "--decisions=20", "--score-decisions=640"),
        ],
    },
}
"""What is put in the place of a module's constants, and of what it starts processes with."""


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, short_world_model: None) -> None:
    """The sizes are tiny, and nothing is compiled by torch."""
    for name, constants in TINY.items():
        module = importlib.import_module(f"measure.{name}")
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    # `int` takes the count, does nothing, and is known to other processes, as no lambda is.
    monkeypatch.setattr(torch, "set_num_threads", int)
    monkeypatch.setenv(provenance.COMMIT, "0" * 40 + "+")


def check(script: Script, folder: Path, name: str, device: str) -> None:
    """Run a measurement, and check what it writes."""
    try:
        find_compiler()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    row, file = MEASUREMENTS[name], folder / f"{name}.json"
    words = WORDS.get(name, "").split()
    if device == "cuda":  # which a row of the table may choose for a processor alone
        words = [word for word in words if word not in ("--device", "python")]
    words += ["--device", device] if len(row.devices) > 1 and "--device" not in words else []
    ended = script("measure.__main__", name, *words, "--json", file)
    assert ended.status == 0, ended.err
    result = read_result(file)
    assert list(result) == KEYS
    assert (result["commit"], result["dirty"]) == ("0" * 40, True)
    assert result["command"].split()[:3] == ["python", "scripts/measure.__main__.py", name]
    assert "--json" not in result["command"]
    assert ("gpu" in result["machine"]) == (device == "cuda")
    assert result["figures"]
    assert all(
        math.isfinite(value) and figure in ended.out
        for figure, value in result["figures"].items()
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name",
    [x.name for x in MEASUREMENTS.values() if "cpu" in x.devices and x.name not in BY_HAND],
)
def test_a_measurement_runs_and_writes_its_result(
    script: Script, tmp_path: Path, name: str
) -> None:
    pytest.importorskip(NEEDED.get(MEASUREMENTS[name].module, "numpy"))
    check(script, tmp_path, name, "cpu")


@pytest.mark.cuda
@pytest.mark.heavy
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [x.name for x in MEASUREMENTS.values() if "cuda" in x.devices])
def test_a_measurement_runs_on_a_gpu(script: Script, tmp_path: Path, name: str) -> None:
    if name in BY_HAND:
        pytest.skip("by hand")
    check(script, tmp_path, name, "cuda")


def test_the_ways_to_draw_are_timed_by_dimension_and_drawn(
    script: Script, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "sampling.png"
    words = ("--dims", "30", "10", "--samples", "16", "--device", "cpu", "--plot", picture)
    ended = script("benchmark_sampling", *words)
    assert ended.status == 0, ended.err
    tables = [table.splitlines() for table in ended.out.strip().split("\n\n")]
    assert [header.split("  ")[0] for header, *_ in tables] == [
        "d, independent noise",
        "d, one noise value for all dimensions",
    ]
    assert [[row.split()[0] for row in rows] for _, _, *rows in tables] == [["10", "30"]] * 2
    for row in (row for _, _, *rows in tables for row in rows):
        times = [float(cell.strip("()").replace(",", "")) for cell in row.split()[1:]]
        assert times[1::2] == pytest.approx([time / times[0] for time in times[::2]], rel=0.2)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_samples_of_the_articles_kernel_lie_on_a_line_through_the_mean() -> None:
    (article,) = (method for method in sampling.METHODS if method.name == "article")
    mean, std = torch.rand(7, device="cuda"), torch.rand(7, device="cuda") + 0.5
    z = (article.make()(mean, std, 1024) - mean[:, None]) / std[:, None]
    torch.testing.assert_close(z, z[:1].expand(7, 1024), rtol=0, atol=1e-5)
    assert abs(float(z[0].mean())) < 0.2  # six standard errors
    assert abs(float(z[0].std()) - 1) < 0.14


@pytest.mark.usefixtures("small")
def test_a_result_is_filed_under_the_machine(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(provenance, "RESULTS", tmp_path)
    assert script("measure.__main__", "discrete", "--record").status == 0
    assert read_result(tmp_path / provenance.machine_name("cpu") / "discrete.json")["figures"]


def test_committed_results_have_the_form_of_a_result() -> None:
    for path in RESULTS.glob("*/*.json"):
        result = read_result(path)
        assert list(result) == KEYS, path
        assert len(result["commit"]) == 40, path
        assert result["command"].startswith("python scripts/"), path
        assert {"processor", "cores"} <= result["machine"].keys(), path
        assert all(isinstance(value, (int, float)) for value in result["figures"].values()), (
            path
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["samplng"], "did you mean 'sampling'?"),
        (["equality"], "expected a GPU for what is measured"),
        pytest.param(
            ["bbob-mixint", "--dims", "2"],
            "expected a dimension of bbob-mixint, got 2",
            marks=NEEDS_COCO,
        ),
        (
            ["published"] * 2 + ["--json", "x.json"],
            "expected one experiment with --json, got 2",
        ),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_measured_is_one_line(
    script: Script, words: list[str], message: str
) -> None:
    ended = script("measure.__main__", *words)
    assert (ended.status, len(ended.err.splitlines())) == (2, 1), ended.err
    assert message in ended.err


def test_a_run_of_another_checkout_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "sys.argv",
        [str(provenance.ROOT / "scripts" / "x.py"), "--json", "x.json", "/else/where"],
    )
    provenance.write_result(
        tmp_path / "x.json",
        Measured({"a": 1.0}, {"versions": {"peer": "1.2"}}, {"-1": [{"b": 2}]}),
        "cpu",
        provenance.commit(),
    )
    result = read_result(tmp_path / "x.json")
    assert result["command"] == "python scripts/x.py where"
    assert result["versions"]["peer"] == "1.2"
    assert json.loads((tmp_path / "x-1.jsonl").read_text()) == {"b": 2}
    assert provenance.commit()[0]
    monkeypatch.setattr(provenance.run_folder, "_ROOT", tmp_path)
    assert provenance.commit() == (None, True)


def test_a_result_names_the_commit_that_was_there_when_the_measurement_began(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(*_: object) -> Measured:
        monkeypatch.setenv(provenance.COMMIT, "b" * 40)  # somebody commits meanwhile
        return Measured({"a": 1.0}, {})

    monkeypatch.setenv(provenance.COMMIT, "a" * 40)
    monkeypatch.setattr(rollout, "measure", measure)
    ended = script(
        "measure.__main__", "rollout", "--device", "python", "--json", tmp_path / "x.json"
    )
    assert ended.status == 0, ended.err
    assert read_result(tmp_path / "x.json")["commit"] == "a" * 40


@pytest.mark.usefixtures("small")
def test_engines_are_compared_and_one_bit_of_difference_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert equality.measure(SimpleNamespace(), "python").figures["equality.configurations"] == 4

    class Wrong(Rollout):
        def advance(self, decisions: int, check: Any = None) -> Any:
            super().advance(decisions, check)
            if self.device == "python":
                self.columns[1, 1] += 1
            return super().advance(0)

    monkeypatch.setattr(equality, "Rollout", Wrong)
    one = equality.Configuration(
        "random", 3, (4, 5), "dt", Lookahead.NONE, Streams(Rules(6, 8), 2, 1)
    )
    with pytest.raises(RuntimeError, match="got other boards of candidate 1 and 0 more"):
        equality.compare(one, "python")


def test_configurations_cover_what_a_rollout_can_be_asked_for() -> None:
    chosen = equality.configurations(480, tuple(equality.WIDTHS), Lookahead.NONE)
    assert chosen == equality.configurations(480, tuple(equality.WIDTHS), Lookahead.NONE)
    assert {each.features for each in chosen} == equality.WIDTHS.keys()
    assert {each.weights for each in chosen} == set(equality.WEIGHTS)
    assert {each.streams.seed for each in chosen} == set(equality.SEEDS)
    assert {(each.population, each.streams.count, sum(each.parts)) for each in chosen} == set(
        equality.SHAPES
    )
    assert {each.streams.games for each in chosen} == set(equality.GAMES)
    assert {each.streams.rules.board for each in chosen} >= {"4x4", "10x24", "10x20"}


def test_the_gap_of_a_noisy_function_is_that_without_the_noise() -> None:
    pytest.importorskip("cocoex")
    best = coco._best_candidate(coco._load_problem("bbob-noisy", 2, 7, 41))
    for function in (7, 8, 9):  # a sphere with normal, uniform and Cauchy noise
        objective = coco.Objective("bbob-noisy", 2, function, 41, [100])
        values = objective([best + np.array([0.3, 0.4])] * 50)
        assert objective.best[100] == pytest.approx(0.25)
        assert len(set(values)) > 1


def test_constraints_are_evaluated_as_well_and_infeasible_values_do_not_count() -> None:
    pytest.importorskip("cocoex")
    objective = coco.Objective("bbob-constrained", 2, 1, 41, [1, 2])
    inside, outside = (
        objective.start,
        2.0 * coco._best_candidate(objective._problem) - objective.start,
    )
    for x in (inside, outside):
        assert (objective.constraints(x) <= 0).all() == (x is inside)
        objective.evaluate_one(x)
    gap = objective.evaluate_one(inside) - objective._optimum
    assert objective.best[1] == objective.best[2] == gap
    with pytest.raises(coco.Spent):
        objective.evaluate_one(inside + 1.0)


@pytest.mark.usefixtures("small")
def test_a_search_of_the_papers_learns() -> None:
    plan = reproduce.Plan(
        "dt", "10x10", seeds=1, generations=4, limit=2000, score_decisions=64_000
    )
    experiment = reproduce.run_experiment(plan, "cpu")
    assert (
        experiment["searches"]
        == reproduce.run_experiment(plan._replace(seeds=2), "cpu")["searches"][:3]
    )
    for search in experiment["searches"]:  # zero weights pile everything up in a corner
        assert search["mean_lines"][0] < 1.0
        assert search["mean_lines"][-1] > 10.0
    short = reproduce.run_experiment(plan._replace(generations=1, limit=2), "cpu")
    assert short["searches"][0]["candidate_games_cut"] == [reproduce.POPULATION]


def test_the_first_command_comes_twice_with_one_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = []

    def train(out: Any, *of: Any, **own: str) -> tuple[dict[str, float], str]:
        caches.append(own["CEM_TETRIS_CACHE"])
        return {
            "total_seconds": 50.0 if out.path.name == "cold" else 40.0
        }, "270 M: 5.3 times dt20, the best"

    monkeypatch.setattr(training, "train", train)
    found = training.measure(SimpleNamespace(what="first_run", seed=1), "cpu").figures
    assert {name.partition(".")[2]: x for name, x in found.items()} == {
        **{"cold.seconds": 50.0, "warm.seconds": 40.0, "times_dt20": 5.3}
    }
    assert len(set(caches)) == 1


LOG = """\
========= Invalid __global__ write of size 4 bytes
=========     at void cem_tetris::normal_kernel<float>(float *, long)+0x120
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::reduce_kernel<512>(T1)+0x10
========= ERROR SUMMARY: 2 errors
"""


@pytest.mark.parametrize(
    ("program", "passed", "failed"),
    [
        ('echo "91 passed, 3 skipped in 12.3s"', 91, 0),
        (
            'echo "FAILED tests/a.py::b - assert 0"; echo "1 failed, 2 passed in 1s"; exit 1',
            2,
            1,
        ),
        ("kill -SEGV $$", 0, 1),
    ],
)
def test_findings_and_crashes_under_a_sanitizer_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, passed: int, failed: int
) -> None:
    (tmp_path / "compute-sanitizer").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    (tmp_path / "log").write_text(LOG)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = sanitizers.run_file("memcheck", tmp_path / "log", "test_nothing.py")
    assert (found["passed"], found["failed"], len(found["failures"])) == (
        passed,
        failed,
        failed,
    )
    assert (found["errors"], found["elsewhere"]) == (1, 1)


def test_times_are_in_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def call() -> None:
        clock[0] += 3e-6

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    times = timing.wall_times({"call": call}, Plan(2, 3, 1))["call"]
    assert [times[name] for name in ("median", "least", "most")] == pytest.approx([3.0] * 3)
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda end: 0.004)  # milliseconds
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing, "_wake", lambda: None)
    assert timing.latency_times({"call": call}, Plan(1, 1, 0))["call"]["mean"] == pytest.approx(
        4.0
    )
    spread = {
        "median": 4.0,
        "mean": 20.0,
        "least": 3.0,
        "most": 5.0,
        "calls": 6,
    }  # medians of rounds
    assert timing._summary([[1.0, 5.0, 9.0], [2.0, 3.0, 100.0]]) == spread


def test_operators_are_compared_with_pytorchs_and_with_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worked_times(functions: Any, _: Plan) -> dict[str, Any]:
        times = {name: 8.0 if name.startswith("torch ") else 4.0 for name in functions}
        times["copy"] = 2.0
        return {name: {"median": us, "least": us, "most": us} for name, us in times.items()}

    monkeypatch.setattr(operators, "wall_times", worked_times)
    monkeypatch.setattr(operators, "ELEMENTS", {"cpu": 1000})
    copy, *rows = operators.elementwise("cpu", torch.float32)
    # 4,000 bytes are read and 4,000 written in 2 microseconds.
    assert copy["gb_per_s"] == pytest.approx(4.0)
    assert {(row["us"], row["torch_us"], row["of_torch"]) for row in rows} == {(4.0, 8.0, 2.0)}


def test_a_step_that_begins_a_game_places_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    games = SimpleNamespace(
        single_action_space=SimpleNamespace(n=4),
        reset=lambda seed: None,
        step=lambda actions: (None, None, np.array([True, False]), None, None),
    )
    monkeypatch.setattr(env.gymnasium, "make_vec", lambda *_, **options: games)
    assert env.make_speed_test("env", 2).play(3) == 3 * 2 - 3


def test_an_interval_of_three_percent_needs_61_million_decisions_of_a_score_of_4300() -> None:
    # (1.96 * 1.03 / 0.03)^2 games of 4,300 lines, 2.5 decisions a line, and a quarter more.
    assert reproduce.decisions_for("dt20", "10x10", 0.03) == 61_000_000


def test_a_figure_is_placements_a_second_or_microseconds_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]

    def play(steps: int) -> int:
        clock[0] += steps / 1000
        return 4 * steps

    monkeypatch.setattr(rollout.time, "perf_counter", lambda: clock[0])
    speed_tests = [
        rollout.SpeedTest(str(inverse), play, 2, inverse) for inverse in (False, True)
    ]
    measured = rollout.measure_speeds(speed_tests, repeats=3, seconds=0.1)
    assert list(measured.figures.values()) == pytest.approx([4000, 250])
    assert measured.data["ranges"]["True"] == pytest.approx([250, 250])
    assert clock[0] == pytest.approx(2 * (2 * 0.002 + 3 * 0.1))


def test_an_engine_on_threads_of_its_own_leaves_the_number_of_threads_as_it_was() -> None:
    threads = torch.get_num_threads()
    engine = rollout.Engine("figure", "python", 1, threads=threads + 1)
    rollout.make_speed_test(engine, published("dt20"), Rules(6, 6), "").play(1)
    assert torch.get_num_threads() == threads


@NEEDS_COCO
def test_gaps_are_those_of_their_dimension_and_a_quarter_of_integers_range_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixed = coco.Objective("bbob-mixint", 5, 1, 1, [1])
    assert (4 * mixed.std == np.diff(mixed.box, axis=0)).all()
    monkeypatch.setattr(coco, "gaps_of", lambda run: [run.dim, run.function])
    words = "bbob --searches cem --functions 3 4 --instances 1 --dims 2 5"
    arguments = table._parse(MEASUREMENTS["coco"], ["--suite", *words.split()])
    searches = coco.measure(arguments, "cpu").data["searches"]["cem"]
    assert searches["d2"]["gaps"] == [[2, 3], [2, 4]]


def test_shares_of_targets_have_the_spread_of_instances() -> None:
    least, most = min(coco.TARGETS), max(coco.TARGETS)
    gaps = [
        [2 * most, least],
        [least, least],
        [2 * most, 0.0],
        [most, 0.0],
    ]  # of two functions, two instances
    found = coco.summary(gaps, 2, [200, 2000])
    one = 1 / len(coco.TARGETS)
    assert found["200"]["solved"] == pytest.approx((1 + one) / 4)
    variances = (1 / 2, one**2 / 2)
    assert found["200"]["standard_error"] == pytest.approx((sum(variances) / 2) ** 0.5 / 2)
    assert found["2000"] == {"solved": 1.0, "standard_error": 0.0}
    assert list(table._numbers("41-43")) == [41, 42, 43]
