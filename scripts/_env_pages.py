"""What docs/gymnasium.md says of the speed of the environments, on a processor and on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from _markdown import Report, markdown, origin

Reports = Mapping[str, Report]
"""Result files by their name from the root."""

_FIGURE = re.compile(r"env\.(?P<engine>[a-z.]+?)(\.(?P<games>\d+))?\.placements_per_second")
_ENGINES = {
    "python": "`gymnasium.make`: Python, one game",
    "cpu.numpy": 'C++ engine, `output="numpy"`',
    "cpu.torch": 'C++ engine, `output="torch"`',
    "cuda": "CUDA engine, torch tensors on the GPU",
}


def env_speed(reports: Reports) -> str:
    """Return the placements a second of random play; of a GPU's file the CUDA engine's alone."""
    rows, origins = [], []
    for file, report in reports.items():
        result = report.get("parts", report).get("env")
        if result is None:
            continue
        origins.append(origin(result, file))
        for name, value in result["figures"].items():
            match = _FIGURE.fullmatch(name)
            assert match is not None, name
            if ("gpu" in result["machine"]) != (match["engine"] == "cuda"):
                continue
            low, high = result["ranges"][name]
            speed, least, most = (f"{float(f'{each:.3g}'):,.0f}" for each in (value, low, high))
            rows.append(
                [_ENGINES[match["engine"]], f"{int(match['games'] or 1):,}", speed, f"{least} to {most}"]
            )
    if not rows:
        return "Not measured yet."
    table = markdown(["environment", "games", "placements/s", "of the repeats"], rows)
    return "\n\n".join([table, *origins])


ENV_BLOCKS: dict[str, Callable[[Reports], str]] = {"env_speed": env_speed}
