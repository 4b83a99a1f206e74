"""What was lost when runs were broken on purpose, and whether memory grows: blocks of docs/reliability.md."""

from __future__ import annotations

from pages.result_files import Result, load_all, table_block
from pages.wording import digits

TRIALS = {
    "kill.1": "`kill -9` of a run, then `--resume`",
    "kill.3": "`kill -9` of one of three ranks; `torchrun` starts them again",
    "SIGINT.1": "Ctrl-C (SIGINT), then `--resume`",
    "SIGTERM.1": "SIGTERM, then `--resume`",
    "SIGHUP.1": "SIGHUP, then `--resume`",
    "SIGINT.2": "SIGINT to `torchrun` of two ranks, then `--resume` with one",
    "SIGTERM.2": "SIGTERM to `torchrun` of two ranks, then `--resume` with one",
    "SIGHUP.2": "SIGHUP to `torchrun` of two ranks, then `--resume` with one",
    "hung": "one of two ranks stopped (SIGSTOP), with a time-out of 3 s, then `--resume` with one",
    "full_disk": "no file may grow beyond a random size, then `--resume` with room",
    "damaged": "one or two files of a run cut, changed, emptied or removed, read by every command",
}
_GROWTH = {
    "resident_mib_per_hour": "resident memory, MiB an hour",
    "cuda_mib_per_hour": "memory of tensors on the GPU, MiB an hour",
    "files_per_hour": "open files, an hour",
    "threads_per_hour": "threads, an hour",
}


def reliability() -> str:
    """Return how often runs were broken in which way and what was lost, by the newest result of a trial."""
    results, rows, shown = sorted(load_all("reliability*"), key=lambda each: each.date), [], []
    for name, label in TRIALS.items():
        for result in results[::-1]:
            told = _figures(result, f"reliability.{name}.")
            if told:
                seconds = digits(told["slowest_seconds"]) if "slowest_seconds" in told else ""
                counts = (f"{told[key]:,.0f}" for key in ("attempts", "lost"))
                rows.append([label, *counts, seconds, f"`{name}`"])
                shown.append(result.name)
                break
    sources = [result for result in results if result.name in shown]
    return (
        table_block(["what was done", "times", "lost", "slowest, s", "TRIAL"], rows, *sources) if rows else ""
    )


def soak() -> str:
    """Return the growth of a process that does everything again and again, machine by machine."""
    blocks = []
    for result in load_all("soak"):
        told, ranges = _figures(result, "soak."), result.data["ranges"]
        rows = [["duration, s; rounds", f"{told['seconds']:,.0f}; {told['rounds']:,.0f}"]]
        for name, label in _GROWTH.items():
            if name in told:
                numbers = told[name], *ranges[f"soak.{name}"]
                growth, low, high = (round(number, 2) + 0.0 for number in numbers)  # never -0
                rows.append([f"growth of {label}", f"{growth:.2f} ({low:.2f} to {high:.2f})"])
        ends = f"{told['resident_mib_after_warm_up']:.0f}, {told['resident_mib_at_the_end']:.0f}"
        rows.append(["resident memory after the first tenth and at the end, MiB", ends])
        blocks.append(table_block(["soak", result.hardware], rows, result))
    return "\n\n".join(blocks)


def _figures(result: Result, prefix: str) -> dict[str, float]:
    return {
        key.removeprefix(prefix): value for key, value in result.figures.items() if key.startswith(prefix)
    }
