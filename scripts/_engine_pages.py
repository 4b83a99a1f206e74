"""What README and docs say of the Tetris engine on a GPU: its speed, its games beside the CPU's, training."""

from __future__ import annotations

import re

from _controllers import GOOD
from _machine import processor_of
from _markdown import Block, Report, cell, markdown, part
from _operator_tables import digits

_NOT_YET = "Not measured yet."
_SINGLE = "rollout.cuda.single_game.us_per_decision"
_PER_CORE = "rollout.cpu.dt.10x20.decisions_per_second_per_core"
_ALL = "rollout.cpu.dt.10x20.decisions_per_second_all"


def _rate(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}"


@part("rollout", _NOT_YET)
def rollout(result: Report) -> str:
    """Return decisions a second for every controller on the GPU, and the processor beside it."""
    figures, machine = result["figures"], result["machine"]
    rows, single = [], figures[_SINGLE]
    for name, value in figures.items():
        match = re.fullmatch(r"rollout\.cuda\.(\w+)\.10x20\.decisions_per_second", name)
        if match:
            controller = GOOD[match[1]]
            features = len(result["controllers"][controller])
            rows.append([f"CUDA, {controller} ({features} features)", _rate(value)])
    rows += [
        [f"CUDA, dt20, a single game: {digits(single)} us a decision", _rate(1e6 / single)],
        [f"C++, dt20, one core of {processor_of(machine)}", _rate(figures[_PER_CORE])],
        [f"the same, {machine['cores']} cores", _rate(figures[_ALL])],
    ]
    return markdown(["engine and controller, 10x20", "decisions/s"], rows)


@part("equality", _NOT_YET)
def equality(result: Report) -> str:
    """Return how much was played on both engines with the same result."""
    figures = result["figures"]
    return (
        f"Played on the CPU and on the GPU: {figures['equality.decisions']:,} decisions in "
        f"{figures['equality.configurations']:,} configurations of features, board, rule, pieces, weights "
        f"and streams. Lines, games or boards that differ: {figures['equality.differences']}."
    )


@part("training", _NOT_YET)
def gpu_training(result: Report) -> str:
    """Return what training comes to on the GPU, step by step."""
    figures, (learned, reference) = result["figures"], result["score"]
    outcome = "reached" if result["reached"] else "missed"
    rows = [
        ["the process, from its start to the controller", f"{figures['train.total_seconds']:.1f} s"],
        ["the generations alone", f"{result['training_seconds']:.1f} s"],
        ["decisions", f"{result['decisions']:,}"],
        ["time in which a kernel runs", f"{figures['train.gpu_busy_fraction']:.1%}"],
        ["longest time without one", f"{result['gpu']['longest_gap'] * 1e3:.1f} ms"],
        ["learned controller, lines a game on 10x20", cell(learned)],
        ["dt20, on the same pieces", cell(reference)],
        [f"the goal of {result['goal'] / 1e6:g} million lines", outcome],
    ]
    config = result["config"]
    title = f"preset {config['preset']}, features `{config['features']}`, seed {config['seed']}"
    return markdown([title, ""], rows)


@part("rollout")
def rollout_sentence(result: Report) -> str:
    """Return the speed of the CUDA engine in a sentence."""
    figures = result["figures"]
    speed = figures["rollout.cuda.dt.10x20.decisions_per_second"]
    return (
        f"On an {result['machine']['gpu']} the CUDA engine makes {speed / 1e9:.3g} billion decisions a "
        f"second, as many as {speed / figures[_PER_CORE]:,.0f} cores of the processor beside it."
    )


@part("training")
def training_sentence(result: Report) -> str:
    """Return in a sentence what training comes to on the GPU."""
    (learned, reference), config = result["score"], result["config"]
    return (
        f"On an {result['machine']['gpu']} `python scripts/train_tetris.py` has, "
        f"{result['figures']['train.total_seconds']:.0f} s after its start, learned a controller of the "
        f"features `{config['features']}` that has {cell(learned)} on 10x20 (lines a game, seed "
        f"{config['seed']}); dt20 has {cell(reference)} on the same pieces."
    )


ENGINE_BLOCKS: dict[str, Block] = {
    "rollout": rollout,
    "equality": equality,
    "gpu_training": gpu_training,
    "rollout_sentence": rollout_sentence,
    "training_sentence": training_sentence,
}
