"""Run measurements, each in a process of its own, and write benchmarks/results/<machine>/<measurement>.json.

python scripts/measure/run.py --list
python scripts/measure/run.py rollout env --machine epyc-2core
python scripts/measure/run.py record_training --commit SHA --stop-after 540

Without a name all that this machine's device has. A copy of the files without git needs --commit. With
--stop-after the long ones stop in time, and go on when the same command is run again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure.cli import STOP_AFTER, UNFINISHED
    from measure.processes import environment
    from measure.provenance import COMMIT, RESULTS, ROOT, commit, machine_name
    from tetris.commands.arguments import add_device
    from tetris.commands.command_line import Parser, fail, one_line_errors, one_of, run
    from tetris.devices import choose_device
    from tetris.evaluation.text_table import table

KEPT = ROOT / "runs" / "measure"
_SCRIPTS = ROOT / "scripts"


class Measurement(NamedTuple):
    """A command that measures, and writes one result."""

    name: str  # of the result
    command: str  # a script, in which {device}, {results}, {keep} and {stop_after} are filled in
    timeout_s: float = 600.0
    devices: tuple[str, ...] = ("cpu", "cuda")


_GPU, _CPU = ("cuda",), ("cpu",)
_LONG = "--keep {keep} --stop-after {stop_after}"
_NOISY_CE = {"bertsekas_10x10": _CPU, "bcts_10x10": _CPU, "bertsekas_10x20": _GPU, "bcts_10x20": _GPU}
_ALL = (
    Measurement("tests", "measure sanitizers tests", 900.0, _GPU),
    Measurement("sampling", "benchmark_sampling.py --device {device}"),
    Measurement("generation", "benchmark_generation.py --device {device}"),
    Measurement("large_generation", "measure large_generation", 600.0, _GPU),
    Measurement("optimizers", "compare_optimizers.py quality behaviour", 7200.0, _CPU),
    Measurement("operators", "benchmark_operators.py --device {device}", 1200.0),
    Measurement("rollout", "benchmark_tetris.py dt20 best bcts bdu bertsekas"),
    Measurement("equality", "measure equality", 600.0, _GPU),
    Measurement("env", "benchmark_env.py --device {device}"),
    Measurement("planner", "measure planner --device {device}", 3600.0),
    Measurement("ppo", "measure ppo", 1200.0, _CPU),
    Measurement("limits", "measure limits --device {device}", 3600.0),
    Measurement("limits_large", "measure limits --device cuda --boards 4x8:1 8x4:1 4x7:2", 3600.0, _GPU),
    Measurement("next_piece", "measure next_piece --device {device}", 3600.0),
    Measurement("two_pieces", "measure two_pieces --device {device} --seconds 170", 1800.0),
    Measurement("other_rules", "measure other_rules --device {device}", 1800.0),
    Measurement("original_rule", "measure original_rule --device {device}", 1800.0),
    Measurement("heights", "measure heights --device {device}", 1800.0),
    Measurement("kills", "measure kills", 3600.0, _CPU),
    Measurement("second_chance", "measure second_chance --device {device}", 1800.0),
    Measurement("worst_pieces", "measure worst_pieces", 1800.0, _CPU),
    Measurement("scale", "measure scale --device {device}", 1800.0),
    Measurement("reliability", "measure reliability", 5400.0, _CPU),
    Measurement("reliability_sighup", "measure reliability SIGHUP.1", 900.0, _CPU),
    Measurement("soak", "measure soak --device {device}", 4500.0),
    Measurement("training", "measure training preset --device {device}", 3600.0),
    *(
        Measurement(tool, f"measure sanitizers {tool}", 3600.0, _GPU)
        for tool in ("memcheck", "racecheck", "initcheck")
    ),
    Measurement("time_to_target", f"measure time_to_target --device {{device}} {_LONG}", 7200.0),
    Measurement("record_training", f"measure record train {_LONG}", 3600.0, _GPU),
    Measurement(
        "record_score", "measure record score --training {results}/record_training.json", 3600.0, _GPU
    ),
    Measurement("first_run", "measure training first_run --device {device}", 1800.0),
    Measurement("best_scores", "measure record low_boards", 900.0, _GPU),
    Measurement("lookahead", f"measure lookahead --device {{device}} {_LONG}", 3600.0, _GPU),
    Measurement("published", "reproduce.py published --device {device}", 3600.0),
    *(
        Measurement(f"noisy_ce_{plan}", f"reproduce.py noisy_ce_{plan} --device {{device}}", 3600.0, devices)
        for plan, devices in _NOISY_CE.items()
    ),
)
MEASUREMENTS = {each.name: each for each in _ALL}
"""Every measurement there is but compare_mdptetris.py and compare_peers.py, which need peers."""


def measure(one: Measurement, folder: Path, device: str, stop_after_s: float | None) -> str:
    """Run a measurement, whose result then lies in the folder; what came of it."""
    values = {
        "device": device,
        "results": folder,
        "keep": KEPT / folder.name / f"{one.name}-{commit()[0]}",
        "stop_after": stop_after_s or 0.9 * one.timeout_s,
    }
    script, *words = (word.format_map(values) for word in one.command.split())
    command = [sys.executable, str(_SCRIPTS / script), *words, "--json", str(folder / f"{one.name}.json")]
    own = {**environment(), **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}
    try:
        status = subprocess.run(command, cwd=ROOT, env=own, timeout=one.timeout_s, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"not done in {one.timeout_s:.0f} s"
    return {0: "done", UNFINISHED: "not done: run it again to go on"}.get(status, f"failed with {status}")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 where something failed or is not done."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] [NAME ...]")
    known, out = one_of("measurement", MEASUREMENTS), "(default: benchmarks/results)"
    parser.add_argument("names", nargs="*", type=known, metavar="NAME", help="measurements (default: all)")
    parser.add_argument("--list", action="store_true", help="say which there are")
    add_device(parser, ("auto", "cpu", "cuda"), what="what is measured")
    parser.add_argument("--machine", metavar="NAME", help="folder of the results (default: by its processor)")
    parser.add_argument("--commit", metavar="SHA", help="that is measured, 40 digits (default: by git)")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help=out)
    parser.add_argument("--stop-after", **STOP_AFTER["--stop-after"])
    arguments = parser.parse_args(argv)
    if arguments.list:
        rows = [[each.name, " ".join(each.devices), each.command] for each in _ALL]
        print(table(["measurement", "devices", "command"], rows))
        return 0
    with one_line_errors():
        device = choose_device(arguments.device)
        names = arguments.names or [name for name, each in MEASUREMENTS.items() if device in each.devices]
        for name in names:
            if device not in MEASUREMENTS[name].devices:
                fail(f"expected a measurement of {device}, got {name}: see --list")
        if arguments.commit:
            if not re.fullmatch("[0-9a-f]{40}", arguments.commit):
                fail(f"--commit: expected the 40 digits of git rev-parse, got {arguments.commit}")
            os.environ[COMMIT] = arguments.commit
        sha, dirty = commit()
        if sha is None:
            fail("expected git to know the commit that is measured: name it with --commit")
        os.environ[COMMIT] = sha + "+" * dirty  # that of the beginning, whatever happens meanwhile
        folder = arguments.out / (arguments.machine or machine_name(device))
        folder.mkdir(parents=True, exist_ok=True)
    states = []
    for name in names:
        states.append(measure(MEASUREMENTS[name], folder, device, arguments.stop_after))
        print(f"{name}: {states[-1]}", file=sys.stderr, flush=True)
    return 0 if set(states) == {"done"} else 1


if __name__ == "__main__":
    run(main)
