"""Run measurements, each in a process of its own, and write benchmarks/results/<machine>/<measurement>.json.

python scripts/measure/run.py --list
python scripts/measure/run.py rollout env --machine epyc-2core
python scripts/measure/run.py record_training --commit 27d2ea6 --stop-after 540

Without a name all that this machine's device has. A copy of the files without git needs --commit. With
--stop-after the long ones stop in time, and go on when the same command is run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure.cli import UNFINISHED, add_stop_after
from measure.processes import environment
from measure.provenance import COMMIT, RESULTS, ROOT, commit, machine_name
from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, fail, one_line_errors, one_of, run
from tetris.devices import choose_device
from tetris.evaluation.text_table import table

KEPT = ROOT / "runs" / "measure"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Measurement:
    """A command that measures, and writes one result."""

    name: str  # of the result
    command: str  # a script of this folder; {device} and {NAME}, the result of another one, are filled in
    paths: str  # what it measures, from the root: where these changed, the result may no longer hold
    timeout_s: float = 600.0
    devices: tuple[str, ...] = ("cpu", "cuda")
    needs: str | None = None  # the measurement whose result it reads
    resumable: bool = False  # whether it takes --keep and --stop-after


_GPU, _CPU = ("cuda",), ("cpu",)
_ENGINE = "kernels tetris/engine tetris/rollouts.py"
_TRAINING = f"cem {_ENGINE} tetris/splitting.py tetris/resampling tetris/training"
_PLAYED = "dt20 bcts bdu bertsekas"
MEASUREMENTS = {
    each.name: each
    for each in (
        Measurement("tests", "sanitizers.py tests", "cem kernels tetris tests", 900.0, _GPU),
        Measurement("sampling", "benchmark_sampling.py --device {device}", "kernels"),
        Measurement("operators", "benchmark_operators.py --device {device}", "kernels", 1200.0),
        Measurement("rollout", f"benchmark_tetris.py {_PLAYED}", _ENGINE),
        Measurement("equality", "equality.py", _ENGINE, 600.0, _GPU),
        Measurement("env", "benchmark_env.py --device {device}", f"{_ENGINE} tetris/envs"),
        Measurement("training", "training.py preset --device {device}", _TRAINING, 3600.0),
        *(
            Measurement(tool, f"sanitizers.py {tool}", "cem kernels tetris tests", 3600.0, _GPU)
            for tool in ("memcheck", "racecheck", "initcheck")
        ),
        Measurement(
            "time_to_target", "time_to_target.py --device {device}", _TRAINING, 7200.0, resumable=True
        ),
        Measurement("record_training", "record.py train", _TRAINING, 3600.0, _GPU, resumable=True),
        Measurement(
            *("record_score", "record.py score --training {record_training}", _ENGINE, 3600.0, _GPU),
            needs="record_training",
        ),
        Measurement(
            "first_run", "training.py first_run --device {device}", f"{_TRAINING} tetris/commands", 1800.0
        ),
        Measurement("best_scores", "record.py low_boards", _ENGINE, 900.0, _GPU),
        Measurement("published", "reproduce.py published --device {device}", _ENGINE, 3600.0),
        *(
            Measurement(name, f"reproduce.py {name} --device {{device}}", f"cem {_ENGINE}", 3600.0, devices)
            for name, devices in (
                ("noisy_ce_bertsekas_10x10", _CPU),
                ("noisy_ce_bcts_10x10", _CPU),
                ("noisy_ce_bertsekas_10x20", _GPU),
                ("noisy_ce_bcts_10x20", _GPU),
            )
        ),
    )
}
"""Every measurement there is; compare_mdptetris.py, which needs somebody's copy of a peer, is run by hand."""


def measure(one: Measurement, folder: Path, device: str, stop_after_s: float | None) -> str:
    """Run a measurement; its result then lies in the folder.

    Returns:
        What came of it: ``"done"``, ``"not done"`` where the same command goes on, or why it failed.
    """
    target = folder / f"{one.name}.json"
    values = {"device": device, **({one.needs: folder / f"{one.needs}.json"} if one.needs else {})}
    script, *words = (word.format_map(values) for word in one.command.split())
    if one.resumable:
        words += ["--keep", str(KEPT / folder.name / one.name)]
        words += ["--stop-after", str(stop_after_s)] if stop_after_s is not None else []
    command = [sys.executable, str(_HERE / script), *words, "--json", str(target)]
    own = {**environment(), **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}
    try:
        done = subprocess.run(command, cwd=ROOT, env=own, timeout=one.timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"not done in {one.timeout_s:.0f} s"
    return {0: "done", UNFINISHED: "not done: run it again to go on"}.get(
        done.returncode, f"failed with {done.returncode}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 where something failed or is not done."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] [NAME ...]")
    known, out = one_of("measurement", MEASUREMENTS), "(default: benchmarks/results)"
    parser.add_argument("names", nargs="*", type=known, metavar="NAME", help="measurements (default: all)")
    parser.add_argument("--list", action="store_true", help="say which there are")
    add_device(parser, ("auto", "cpu", "cuda"), what="what is measured")
    parser.add_argument("--machine", metavar="NAME", help="folder of the results (default: by its processor)")
    parser.add_argument("--commit", metavar="SHA", help="that is measured (default: by git)")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help=out)
    add_stop_after(parser)
    arguments = parser.parse_args(argv)
    if arguments.list:
        rows = [[each.name, " ".join(each.devices), each.command] for each in MEASUREMENTS.values()]
        print(table(["measurement", "devices", "command"], rows))
        return 0
    with one_line_errors():
        device = choose_device(arguments.device)
        names = arguments.names or [name for name, each in MEASUREMENTS.items() if device in each.devices]
        for name in names:
            if device not in MEASUREMENTS[name].devices:
                fail(f"expected a measurement of {device}, got {name}: see --list")
        if arguments.commit:
            os.environ[COMMIT] = arguments.commit
        sha, dirty = commit()
        if sha is None:
            fail("expected git to know the commit that is measured: name it with --commit")
        os.environ[COMMIT] = sha + "+" * dirty  # that of the beginning, whatever happens meanwhile
        folder = arguments.out / (arguments.machine or machine_name(device))
        folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in names:
        one = MEASUREMENTS[name]
        state = f"needs {one.needs}"
        if one.needs is None or (folder / f"{one.needs}.json").is_file():
            state = measure(one, folder, device, arguments.stop_after)
        print(f"{name}: {state}", file=sys.stderr, flush=True)
        failed |= state != "done"
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
