"""Write the tables of README and docs from the committed result files, so that no figure there is typed.

python scripts/render_figures.py            # rewrites them
python scripts/render_figures.py --check    # exit 1 where a page differs

A table lies between "begin: NAME" and "end: NAME". The controller that comes with the package as ``best`` is
written from the GPU's file, where the record was measured and beats DT-20. With matplotlib it also draws the
pictures, and with Pillow the agent at play, from the same files. A block of what was not measured is empty,
or says so.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from _engine_pages import ENGINE_BLOCKS
from _env_pages import ENV_BLOCKS
from _kernel_pages import CPU_BLOCKS, KERNEL_BLOCKS
from _machine import source_digest
from _markdown import cell, estimate_cell, markdown, origin
from _noisy_ce_plot import draw_noisy_ce
from _record import best_controller, measured_record
from _record_pages import PICTURE_NAME as RECORD_PICTURE
from _record_pages import RECORD_BLOCKS
from _reproduce_pages import BOARDS, REPRODUCE_BLOCKS, Reports, experiments_on, picture_name
from _reproduce_pages import CPU_FILE as REPRODUCED_CPU
from _reproduce_pages import GPU_FILE as REPRODUCED_GPU
from _results import DESCRIBED_PARTS, stale_parts
from _sampling_plots import draw_sampling_plots
from _time_to_quality_pages import PICTURE_NAME, QUALITY_BLOCKS, measured
from _time_to_quality_plot import draw_time_to_quality

from kernels.files import write_text
from tetris import LinearController, Rules
from tetris.commands.command_line import Parser, run
from tetris.evaluation.papers import PUBLISHED_SCORES
from tetris.evaluation.scores import DEFAULT_SEED, find_estimate, find_measurement
from tetris.evaluation.text_table import lines
from tetris.explanation import decisions
from tetris.report.learning_curve import draw_learning_curve
from tetris.stream import PieceStream
from tetris.training.recipe import has_changed
from tetris.view.game_view import Scene, scenes
from tetris.view.movies import check_gif, write_gif

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "docs/scores.md",
    "docs/results.md",
    "docs/training.md",
    "docs/engine.md",
    "docs/performance.md",
    "docs/gymnasium.md",
)
CPU = ROOT / "benchmarks" / "results" / "cpu.json"
GPU = ROOT / "benchmarks" / "results" / "h200.json"
DOCS = ROOT / "docs"
PICTURE = DOCS / "learning_curve.png"
BEST = ROOT / "tetris" / "controllers" / "best.json"
"""The controller of the record, as it comes with the package."""

AGENT = DOCS / "agent.gif"
AGENT_RULES = Rules(10, 10)
AGENT_PIECES, AGENT_SPEED = 120, 5.0
"""How many pieces the agent places in its picture, and how many a second."""
CPU_FILE, GPU_FILE = "benchmarks/results/cpu.json", "benchmarks/results/h200.json"


def median_run(result: dict[str, Any]) -> dict[str, Any]:
    """Return the training run whose estimate on 10x20 is the median; those without one count as least."""
    runs: list[dict[str, Any]] = list(result["training"])
    runs.sort(key=lambda run: (find_estimate(run, "learned", "10x20") or {}).get("lines_per_game", 0.0))
    return runs[len(runs) // 2]


def scores(result: dict[str, Any]) -> str:
    """Return the closing table of the median run."""
    run = median_run(result)
    names = list(dict.fromkeys(score["controller"] for score in run["score"]))
    rows = [
        [
            f"**learned** (seed {run['seed']})" if name == "learned" else name,
            cell(find_measurement(run["score"], name, "10x10")),
            large_board_cell(run, name),
        ]
        for name in names
    ]
    table = markdown(["controller", "lines a game, 10x10", "lines a game, 10x20, estimated"], rows)
    return f"{table}\n\n{origin(result, CPU_FILE)}"


def large_board_cell(run: dict[str, Any], name: str) -> str:
    """Return what a controller is estimated to play on 10x20; where it was not, its score there."""
    estimate = find_estimate(run, name, "10x20")
    return (
        cell(find_measurement(run["score"], name, "10x20")) if estimate is None else estimate_cell(estimate)
    )


def training(result: dict[str, Any]) -> str:
    """Return what training without a flag comes to over the seeds."""
    runs = result["training"]
    small = [find_measurement(run["score"], "learned", "10x10")["lines_per_game"] for run in runs]
    found = [find_estimate(run, "learned", "10x20") for run in runs]
    large = [each["lines_per_game"] for each in found if each is not None]
    dt20 = find_estimate(runs[0], "dt20", "10x20")
    estimated = ""
    if dt20 is not None and len(large) == len(runs):
        estimated = (
            f", and of {over_seeds(large)} on 10x20 (estimated; dt20, the best published one, "
            f"{lines(dt20['lines_per_game'])} by the same method)"
        )
    seconds = [run["training_seconds"] for run in runs]
    return (
        f"Over seeds 1 to {len(runs)}, from nothing, training without a flag gets to a median of "
        f"{over_seeds(small)} lines a game on 10x10, where the record of 2009 has about 3,900{estimated}, "
        f"after a median of {statistics.median(seconds):.0f} s of training on "
        f"{result['machine']['cores']} cores (slowest {max(seconds):.0f} s)."
    )


def over_seeds(values: Sequence[float]) -> str:
    """Return lines a game of several runs: the median, with the worst and the best."""
    return f"{lines(statistics.median(values))} (worst {lines(min(values))}, best {lines(max(values))})"


def speed(result: dict[str, Any]) -> str:
    """Return decisions a second for every engine."""
    figures = result["figures"]
    labels = [
        ("readable Python", "rollout.python.dt.10x20.decisions_per_second"),
        ("C++, portable, one core", "rollout.portable.dt.10x20.decisions_per_second_per_core"),
        ("C++, this processor's vectors, one core", "rollout.cpu.dt.10x20.decisions_per_second_per_core"),
        (f"the same, {result['machine']['cores']} cores", "rollout.cpu.dt.10x20.decisions_per_second_all"),
    ]
    rows = [[label, f"{float(f'{figures[name]:.3g}'):,.0f}"] for label, name in labels]
    rows.append(["MDPTetris (C), one core, measured for this project", "230,000"])
    return markdown(["engine", "decisions/s"], rows) + f"\n\n{origin(result, CPU_FILE)}"


def published(result: dict[str, Any]) -> str:
    """Return the published controllers, ours beside the papers' figures."""
    rows = []
    for name, papers in PUBLISHED_SCORES.items():
        row = [name]
        for board in ("10x10", "10x20"):
            ours = find_measurement(result["published"][board], name, board)
            row += [cell(ours), str(papers.get(board, "-"))]
        rows.append(row)
    header = ["controller", "10x10, here", "10x10, paper", "10x20, here", "10x20, paper"]
    return f"{markdown(header, rows)}\n\n{origin(result, CPU_FILE)}"


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "scores": scores,
    "training": training,
    "speed": speed,
    "published": published,
}
GPU_BLOCKS = {**KERNEL_BLOCKS, **ENGINE_BLOCKS, **RECORD_BLOCKS}
REPORTS_BLOCKS = {**QUALITY_BLOCKS, **ENV_BLOCKS}


def rendered(
    page: Path, result: dict[str, Any], gpu: dict[str, Any] | None = None, reproduced: Reports | None = None
) -> str:
    """Return a page's text with every block written anew.

    Args:
        page: The page.
        result: The CPU's result file.
        gpu: The GPU's, where there is one.
        reproduced: Those of scripts/reproduce.py that there are.

    Raises:
        ValueError: If the page has a block of an unknown name.
    """
    root = "../" * (len(page.relative_to(ROOT).parts) - 1)

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name in BLOCKS:
            text = BLOCKS[name](result)
        elif name in CPU_BLOCKS:
            text = CPU_BLOCKS[name](result, CPU_FILE)
        elif name in GPU_BLOCKS:
            text = GPU_BLOCKS[name](gpu if gpu is not None else {}, GPU_FILE)
        elif name in REPRODUCE_BLOCKS:
            text = REPRODUCE_BLOCKS[name](reproduced or {})
        elif name in REPORTS_BLOCKS:
            text = REPORTS_BLOCKS[name](by_file(result, gpu))
        else:
            known = ", ".join([*BLOCKS, *CPU_BLOCKS, *GPU_BLOCKS, *REPRODUCE_BLOCKS, *REPORTS_BLOCKS])
            raise ValueError(f"expected a block named {known} in {page.name}, got {name!r}")
        text = text.replace("{root}", root)
        return f"<!-- begin: {name} -->\n{text}{chr(10) * bool(text)}<!-- end: {name} -->"

    return re.sub(r"<!-- begin: (\w+) -->\n.*?<!-- end: \1 -->", block, page.read_text(), flags=re.DOTALL)


def by_file(result: dict[str, Any], gpu: dict[str, Any] | None) -> Reports:
    """Return the result files of the CPU and, where there is one, of the GPU by their names."""
    return {CPU_FILE: result, **({GPU_FILE: gpu} if gpu is not None else {})}


def read_reproduced() -> Reports:
    """Return the reports of scripts/reproduce.py that there are."""
    files = [file for file in (REPRODUCED_CPU, REPRODUCED_GPU) if (ROOT / file).is_file()]
    return {file: json.loads((ROOT / file).read_text()) for file in files}


def stale(result: dict[str, Any], gpu: dict[str, Any] | None, reproduced: Reports | None = None) -> list[str]:
    """Return a sentence for each result that was measured with other sources or recipes than are here."""
    found = []
    if result.get("sources") != source_digest("cpu"):
        found.append(f"{CPU.name} was measured with other sources of the engine: run scripts/cpu_report.py")
    described = {name: result[name] for name in DESCRIBED_PARTS if name in result}
    for file, script, parts in (
        (CPU, "cpu_report", described),
        (GPU, "gpu_report", gpu["parts"] if gpu is not None else {}),
        *((Path(name), "reproduce", report["parts"]) for name, report in (reproduced or {}).items()),
    ):
        found += [
            f"{file.name}, part {part}, was measured with other sources of what it measures: "
            f"run scripts/{script}.py --part {part}"
            for part in stale_parts(parts)
        ]
        found += [
            f"{file.name}, part {name}, was trained by another recipe than its preset is now: "
            f"run scripts/{script}.py --part {name}"
            for name, part in parts.items()
            if any(has_changed(config) for config in configs(part))
        ]
    return found


def configs(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the recipes by which the controllers of a part were trained."""
    runs = [part] if "weights" in part or "controller" in part else part.get("runs", [])
    return [run["config"] for run in runs if "config" in run]


def main() -> int:
    """Write the pages, or compare them; the exit code."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a page is out of date"
    )
    arguments = parser.parse_args()
    result = json.loads(CPU.read_text())
    gpu = json.loads(GPU.read_text()) if GPU.is_file() else None
    reproduced = read_reproduced()
    for sentence in stale(result, gpu, reproduced):
        print(f"note: {sentence}", file=sys.stderr)
    texts = {page: rendered(page, result, gpu, reproduced) for page in map(ROOT.joinpath, PAGES)}
    best = best_controller(gpu or {})
    if best is None and BEST.is_file():
        print(f"{BEST.relative_to(ROOT)} is no record of {GPU_FILE}: remove it", file=sys.stderr)
        return 1
    if best is not None:
        texts[BEST] = json.dumps(best.to_dict(), indent=1, allow_nan=False) + "\n"
    old = [file for file, text in texts.items() if not file.is_file() or file.read_text() != text]
    if arguments.check:
        for page in old:
            print(f"{page.relative_to(ROOT)} differs from the result files", file=sys.stderr)
        return 1 if old else 0
    for page in old:
        write_text(page, texts[page])
        print(f"wrote {page.relative_to(ROOT)}")
    draw(median_run(result))
    if gpu is not None and "sampling" in gpu["parts"] and draw_sampling_plots(gpu["parts"]["sampling"], DOCS):
        print(f"wrote the pictures of the sampling benchmark to {DOCS.relative_to(ROOT)}")
    record = measured_record(gpu or {})
    if record is not None:
        config = record[0]["config"]
        title = f"preset {config['preset']}, seed {config['seed']}"
        draw_metrics(record[0]["metrics"], DOCS / RECORD_PICTURE, title)
    timed = [part for part, _ in measured(by_file(result, gpu))]
    if timed and draw_time_to_quality(timed, DOCS / PICTURE_NAME):
        print(f"wrote {(DOCS / PICTURE_NAME).relative_to(ROOT)}")
    for board in BOARDS:
        experiments = [experiment for experiment, _ in experiments_on(board, reproduced)]
        if experiments and draw_noisy_ce(experiments, DOCS / picture_name(board)):
            print(f"wrote {(DOCS / picture_name(board)).relative_to(ROOT)}")
    return 0


def draw(run: dict[str, Any]) -> None:
    """Draw a training run: its learning curve, where matplotlib is installed, and what it learned at play."""
    draw_agent(run)
    draw_metrics(run["metrics"], PICTURE, f"preset quick, seed {run['seed']}")


def draw_metrics(records: list[dict[str, Any]], picture: Path, title: str) -> None:
    """Draw a learning curve from what a run wrote a generation, where matplotlib is installed."""
    if draw_learning_curve(records, picture, title):
        print(f"wrote {picture.relative_to(ROOT)}")


def agent_scenes(run: dict[str, Any]) -> Iterator[Scene]:
    """Yield what is seen of the controller that a training run learned, at play from an empty board."""
    controller = LinearController(run["config"]["features"], tuple(run["weights"]), AGENT_RULES)
    pieces = PieceStream(AGENT_RULES, DEFAULT_SEED, 0)
    return scenes(AGENT_RULES, islice(decisions(controller, AGENT_RULES, pieces), AGENT_PIECES), pieces)


def draw_agent(run: dict[str, Any]) -> None:
    """Draw the controller that a training run learned at play, where Pillow is installed."""
    try:
        check_gif(AGENT_SPEED)
    except ValueError as error:
        print(f"note: {AGENT.relative_to(ROOT)} stays as it is: {error}", file=sys.stderr)
        return
    write_gif(AGENT, agent_scenes(run), "learned", AGENT_SPEED)
    print(f"wrote {AGENT.relative_to(ROOT)}")


if __name__ == "__main__":
    run(main)
