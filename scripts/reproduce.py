"""Measure again what the literature says of Tetris controllers, and set ours beside the papers' figures.

python scripts/reproduce.py --quick      # two minutes on a CPU
python scripts/reproduce.py              # on a GPU, some twenty minutes
python scripts/render_figures.py         # writes docs/results.md from it

Published controllers play on 10x10 and 10x20 by the published rule: on a GPU to 0.5 % and 5 % (95 %
interval, to either side), on a CPU to 3 % on 10x10, and on 10x20 for --seconds. Then the noisy cross-entropy
searches of Szita & Lőrincz (2006) and of Thiery & Scherrer (2009) are run again; see scripts/_noisy_ce.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _noisy_ce import Plan, Search, median_score, run_experiment
from _published import CPU_PRECISION, GPU_PRECISION, figures, measure_published
from _reproduce_pages import (
    NOISY_CE_HEADER,
    PUBLISHED_HEADER,
    games_cut,
    noisy_ce_rows,
    part_name,
    published_rows,
)
from _results import describe, merged, open_report, write_json
from gpu_report import RESULTS, result_path

from kernels.files import check_writable
from kernels.toolchain import find_compiler
from tetris.commands.arguments import add_device
from tetris.commands.command_line import (
    Parser,
    add_parts,
    one_line_errors,
    positive_int,
    positive_seconds,
    run,
)
from tetris.devices import choose_device
from tetris.evaluation.text_table import table
from tetris.progress import progress

DEVICES = ("auto", "cpu", "cuda")

PLANS: Mapping[str, Plan] = {
    part_name(plan.features, plan.board): plan
    for plan in (
        Plan("bertsekas", "10x10", 10, 60, 100_000, 1_000_000),
        Plan("bcts", "10x10", 10, 15, 100_000, 5_000_000),
        Plan("bertsekas", "10x20", 10, 80, 4_000_000, 1_000_000_000),
        # With these features most games soon outlive any limit: what one game can teach is learned early.
        Plan("bcts", "10x20", 10, 20, 4_000_000, 6_400_000_000),
    )
}
CPU_SCORE_DECISIONS = 20_000_000
"""The most decisions by which a search is scored where a CPU plays."""

PARTS = ("published", *PLANS)
QUICK_PARTS = tuple(part for part in PARTS if not part.endswith("10x20"))
QUICK_SEEDS = 3
QUICK_FOLDER = Path("runs")
"""Where what is cut down goes, so that it does not replace what the pages are written from."""

SECONDS, QUICK_SECONDS = 60.0, 3.0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--quick", action="store_true", help="two minutes on a CPU: searches on 10x10, three of a kind"
    )
    add_parts(parser, PARTS)
    add_device(parser, DEVICES)
    length = parser.add_argument_group("length")
    length.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help="for each published controller where nothing else says how long "
        f"(default: {SECONDS:g}, with --quick {QUICK_SECONDS:g})",
    )
    length.add_argument("--seeds", type=positive_int, metavar="N", help="searches with each noise schedule")
    length.add_argument("--generations", type=positive_int, metavar="N", help="of each search")
    length.add_argument(
        "--limit", type=positive_int, metavar="N", help="decisions after which a search's game is cut off"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the result file, where the other parts stay (default: benchmarks/results/reproduce-<gpu>.json, "
        "or reproduce-cpu.json; with --quick in runs/)",
    )
    return parser.parse_args(argv)


def settle_device(requested: str) -> str:
    """Return ``"cpu"`` or ``"cuda"``.

    Raises:
        CompilerMissingError: If there is no compiler: the readable engine would play for weeks.
        ValueError: If CUDA was asked for by name and there is no GPU.
    """
    find_compiler()
    return choose_device(requested)


def published(arguments: argparse.Namespace, device: str) -> dict[str, Any]:
    """Return what the published controllers score; their table goes to stdout."""
    precision = GPU_PRECISION if device == "cuda" and not arguments.quick else CPU_PRECISION
    seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    measured = [each.to_dict() for each in measure_published(device, precision, seconds)]
    print(table(PUBLISHED_HEADER, published_rows(measured)), flush=True)
    return {
        **describe("published", device, engine=True),
        "figures": figures(measured),
        "precision": dict(precision),
        "seconds": seconds,
        "measurements": measured,
    }


def noisy_ce(part: str, arguments: argparse.Namespace, device: str) -> dict[str, Any]:
    """Return what the noisy cross-entropy searches of a part come to; their table goes to stdout."""
    changes = {
        "seeds": arguments.seeds or (QUICK_SEEDS if arguments.quick else None),
        "generations": arguments.generations,
        "limit": arguments.limit,
    }
    plan = replace(PLANS[part], **{name: value for name, value in changes.items() if value is not None})
    if device == "cpu":
        plan = replace(plan, score_decisions=min(plan.score_decisions, CPU_SCORE_DECISIONS))
    with progress(
        desc=f"{plan.features} on {plan.board}", total=plan.generations, unit=" generations"
    ) as bar:

        def update(searches: Sequence[Search]) -> None:
            best = max(search.mean_lines[-1] for search in searches)
            bar.set_postfix_str(f"best mean {best:,.0f} lines/game")
            bar.update()

        experiment = run_experiment(plan, device, update)
    cut, played = games_cut(experiment)
    print(
        f"\n{plan.features} on {plan.board}: {plan.seeds} searches a row, {plan.generations} generations; "
        f"{cut:,} of {played:,} games cut off after {plan.limit:,} decisions"
    )
    print(table(NOISY_CE_HEADER, noisy_ce_rows(experiment)), flush=True)
    return {
        **describe(part, device, engine=True),
        "figures": {
            f"reproduce.{part}.{noise.partition(':')[0]}.lines_per_game_median": median_score(
                experiment, noise
            )
            for noise in dict.fromkeys(search["noise"] for search in experiment["searches"])
        },
        **experiment,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and write each into the file when it is done."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        device = settle_device(arguments.device)
        name = f"reproduce-{result_path().name if device == 'cuda' else 'cpu.json'}"
        folder = QUICK_FOLDER if arguments.quick else RESULTS
        out = arguments.out or folder / name
        if arguments.quick:
            QUICK_FOLDER.mkdir(parents=True, exist_ok=True)
        check_writable(out)
        report = open_report(out, device)
    parts = arguments.part or (QUICK_PARTS if arguments.quick else PARTS)
    if arguments.quick:
        print("note: cut down to searches on 10x10, and to three of a kind", file=sys.stderr)
    elif device == "cpu" and part_name("bcts", "10x20") in parts:
        print(
            "note: the searches with bcts on 10x20 take a CPU a day; --quick leaves them out", file=sys.stderr
        )
    for part in parts:
        result = published(arguments, device) if part == "published" else noisy_ce(part, arguments, device)
        with one_line_errors():
            report = merged(report, {part: result})
            write_json(out, report)
        print(f"wrote {part} to {out}", flush=True)
    return 0


if __name__ == "__main__":
    run(main)
