"""scripts/benchmark_sampling.py: what it measures, prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from measure import benchmark_sampling
from measure.benchmark_sampling import METHODS, article_figures, large_figures, methods_for
from measure.timing import Plan

Script = Callable[..., Any]
TIMES = {method.name: 10.0 for method in methods_for("cuda")}


def times(**medians: float) -> dict[str, dict[str, float]]:
    """Return timings of every method of a GPU: ten microseconds but for those given."""
    return {
        name: {"median": value, "mean": value, "least": value, "most": value, "calls": 1}
        for name, value in {**TIMES, **medians}.items()
    }


ARTICLE = [
    {
        "dim": dim,
        "event": times(compile=compiled, ours=8.0),
        "latency": times(compile=5 * compiled, ours=20.0),
        "host": times(ours=7.0),
        "graph": times(compile=9.0, ours=3.0),
    }
    for dim, compiled in ((10, 32.0), (5000, 16.0))
]
LARGE = {"dim": 1_000_000, "bytes": 4_096_000_000, "event": times(ours=1000.0, fill=950.0)}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = dict.fromkeys(benchmark_sampling.PLANS, Plan(rounds=2, calls=2, warm_up=0))
    monkeypatch.setattr(benchmark_sampling, "PLANS", plans)
    monkeypatch.setattr(benchmark_sampling, "CPU", (2, 5))
    monkeypatch.setattr(benchmark_sampling, "ARTICLE", (10,))
    monkeypatch.setattr(benchmark_sampling, "LARGE", (100_000,))


def test_the_ways_of_a_cpu_are_measured_and_written_down(script: Script, tmp_path: Path) -> None:
    ended = script("benchmark_sampling", "--device", "cpu", "--json", tmp_path / "result.json")
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "result.json").read_text())
    sizes = written["data"]["sizes"]
    assert [size["dim"] for size in sizes] == [2, 5]
    names = [method.name for method in methods_for("cpu")]
    assert {"eager", "torch_normal", "normal_", "backend_torch", "ours", "fill"} <= set(names)
    for size in sizes:
        assert list(size["wall"]) == names
        assert all(0 < each["least"] <= each["median"] <= each["most"] for each in size["wall"].values())
    assert written["machine"]["processor"]
    assert written["figures"]["sampling.cpu.mean_speedup_over_eager"] > 0
    assert "sampling.cpu.mean_speedup_over_eager" in ended.out


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_draws_what_it_says(method: Any) -> None:
    # 4 dimensions x 1024 samples; five standard errors in mean, deviation and correlation fail a right
    # method with a probability below 1e-4, all methods together.
    torch.manual_seed(0)
    if "cpu" not in method.devices:
        pytest.skip("compiles for a minute, and is plain PyTorch besides")
    mean, std = torch.tensor([0.0, 3.0, -5.0, 1.0]), torch.tensor([1.0, 0.5, 2.0, 0.1])
    samples = method.make()(mean, std, 1024)
    if method.name in ("rows", "backend_torch"):
        samples = samples.T
    assert samples.shape == (4, 1024)
    if method.name in ("fill", "noise"):
        return
    z = (samples - mean[:, None]) / std[:, None]
    assert (z.mean(dim=1).abs() < 5 / 32).all()
    assert ((z.std(dim=1) - 1).abs() < 5 / 45).all()
    correlation = torch.corrcoef(z) - torch.eye(4)
    assert bool((correlation.abs() < 5 / 32).all()) == method.independent


def test_figures_are_ratios_of_medians() -> None:
    figures = article_figures(ARTICLE) | large_figures(LARGE)
    assert figures["sampling.article.mean_speedup_over_compile"] == 6.0
    assert figures["sampling.article.min_speedup_over_compile"] == 4.0
    assert figures["sampling.article.mean_speedup_over_compile_busy"] == 3.0
    assert figures["sampling.article.mean_speedup_over_compile_graph"] == 3.0
    assert figures["sampling.host_us"] == 7.0
    assert figures["sampling.large.fraction_of_fill"] == 0.95
    assert figures["sampling.large.gb_per_s"] == 4096.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "gpu"), "expected a device among auto, cpu, cuda; got 'gpu'"),
        (("--json", "/no/such/result.json"), "/no/such: expected a folder to write to, found none"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("benchmark_sampling", *arguments)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert message in line


def test_a_gpu_that_is_not_there_is_one_line_with_the_remedy(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ended = script("benchmark_sampling", "--device", "cuda")
    assert ended.status == 2
    assert "expected a GPU for device cuda" in ended.err
    assert "or take --device cpu" in ended.err


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_measured_by_events_host_and_graph(script: Script, tmp_path: Path) -> None:
    ended = script("benchmark_sampling", "--json", tmp_path / "r.json")
    assert ended.status == 0, ended.err
    (size,) = json.loads((tmp_path / "r.json").read_text())["data"]["article"]
    methods = methods_for("cuda")
    assert (
        set(size["event"]) == set(size["latency"]) == set(size["host"]) == {method.name for method in methods}
    )
    assert set(size["graph"]) == {method.name for method in methods if method.capturable}
    # A kernel takes more than a tenth of a microsecond, and none of these a millisecond.
    assert all(0.1 < each["median"] < 1000 for clock in ("event", "graph") for each in size[clock].values())
