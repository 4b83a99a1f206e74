"""How fast the engines and the environments are: blocks of README and docs."""

from __future__ import annotations

import re

from pages.result_files import load, load_all, processor, table_block, with_provenance
from pages.wording import count, digits, markdown, score

_PER_SECOND = "10x20.decisions_per_second"
_ENGINES = {
    f"rollout.python.dt.{_PER_SECOND}": "reference implementation (Python)",
    f"rollout.portable.dt.{_PER_SECOND}_per_core": "C++ without vector instructions, one core",
    f"rollout.cpu.dt.{_PER_SECOND}_per_core": "C++ with the processor's vectors, one core",
    f"rollout.cpu.dt.{_PER_SECOND}_all": "the same on all cores",
}
_CONTROLLERS = {"dt": "dt20", "bcts": "bcts", "bdu": "bdu", "bertsekas": "bertsekas"}
_ENVIRONMENTS = {
    "python": "`gymnasium.make`: Python, one game",
    "cpu.numpy": 'C++ engine, `output="numpy"`',
    "cpu.torch": 'C++ engine, `output="torch"`',
    "cuda": "CUDA engine, torch tensors on the GPU",
}
_ENVIRONMENT_FIGURE = re.compile(r"env\.(?P<engine>[a-z.]+?)(\.(?P<games>\d+))?\.placements_per_second")


def speed() -> str:
    """Return decisions a second of the engines on the processors that were measured, under dt20."""
    results = [result for result in load_all("rollout") if "gpu" not in result.machine]
    rows = []
    for name, label in _ENGINES.items():
        values = [result.figures.get(name) for result in results]
        if any(values):
            rows.append([label, *("-" if value is None else count(value) for value in values)])
    header = ["decisions/s, dt20 on 10x20", *(result.hardware for result in results)]
    return table_block(header, rows, *results)


def speed_claim() -> str:
    """Return the speed of the engines in three sentences."""
    cpu, gpu, peer = load("epyc-2core/rollout"), load("h200/rollout"), load_all("mdptetris")[0]
    cuda = gpu.figures[f"rollout.cuda.dt.{_PER_SECOND}"]
    own, core = (each.figures[f"rollout.cpu.dt.{_PER_SECOND}_per_core"] for each in (cpu, gpu))
    words = (
        f"One core of {processor(cpu.machine)} makes {count(own)} decisions a second with nine features on "
        f"10x20. In one run on one core the C++ engine makes {peer.figures['mdptetris.speedup']:.0f} times "
        "as many as [MDPTetris]({root}docs/comparison.md), the C program of Thiery & Scherrer. "
        f"One {gpu.hardware} makes {count(cuda)}, as many as {cuda / core:,.0f} cores of its host."
    )
    return with_provenance(words, cpu, gpu, peer)


def mdptetris() -> str:
    """Return the C++ engine beside MDPTetris, played in one run on one machine."""
    result = load_all("mdptetris")[0]
    rows = []
    for name, label in (("mdptetris", "MDPTetris"), ("ours", "C++ engine")):
        least, most = map(count, result.data["ranges"][name])
        side = "mdptetris.ours" if name == "ours" else "mdptetris"
        median = count(result.figures[f"{side}.bcts.10x10.decisions_per_second_per_core"])
        rows.append([label, median, f"{least} to {most}", score(result.data["scores"][name])])
    header = ["bcts on 10x10, one core", "decisions/s, median", "range", "lines a game (95 % interval)"]
    words = (
        f"The C++ engine makes {result.figures['mdptetris.speedup']:.0f} times as many decisions a second."
    )
    return with_provenance(f"{markdown(header, rows)}\n\n{words}", result)


def rollout() -> str:
    """Return decisions a second of the CUDA engine, and of the processor beside it."""
    result = load("h200/rollout")
    figures, machine = result.figures, result.machine
    rows = []
    for name, value in figures.items():
        match = re.fullmatch(rf"rollout\.cuda\.(\w+)\.{_PER_SECOND}", name)
        if match:
            controller = _CONTROLLERS[match[1]]
            features = len(result.data["controllers"][controller])
            rows.append([f"CUDA, {controller} ({features} features)", count(value)])
    single = figures["rollout.cuda.single_game.us_per_decision"]
    core, every = (count(figures[f"rollout.cpu.dt.{_PER_SECOND}_{each}"]) for each in ("per_core", "all"))
    rows += [
        [f"CUDA, dt20, one game: {digits(single)} us a decision", count(1e6 / single)],
        [f"C++, dt20, one core of {processor(machine)}", core],
        [f"C++, dt20, {machine['cores']} cores", every],
    ]
    return table_block(["engine and controller on 10x20", "decisions/s"], rows, result)


def equality() -> str:
    """Return how much was played on the CPU and on the GPU with the same result."""
    result = load("h200/equality")
    figures = result.figures
    words = (
        f"Played on the CPU and on the GPU: {count(figures['equality.decisions'])} decisions in "
        f"{figures['equality.configurations']:,} configurations of features, board, rule, pieces, weights "
        f"and streams. Differences in lines, games or boards: {figures['equality.differences']}."
    )
    return with_provenance(words, result)


def environments() -> str:
    """Return placements a second of random play; from a machine with a GPU the CUDA engine's alone."""
    results, rows = load_all("env"), []
    for result in results:
        for name, value in result.figures.items():
            match = _ENVIRONMENT_FIGURE.fullmatch(name)
            assert match is not None, name
            if ("gpu" in result.machine) == (match["engine"] == "cuda"):
                least, most = map(count, result.data["ranges"][name])
                games = f"{int(match['games'] or 1):,}"
                rows.append([_ENVIRONMENTS[match["engine"]], games, count(value), f"{least} to {most}"])
    header = ["environment", "games", "placements/s, median", "range"]
    return table_block(header, rows, *results)
