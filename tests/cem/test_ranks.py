import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cem
from kernels import ranks

SCRIPT = str(Path(__file__).with_name("shared_searches.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]


def run(count, folder):
    words = [
        sys.executable,
        *([*TORCHRUN, f"--nproc-per-node={count}"] if count > 1 else []),
        SCRIPT,
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(cem.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(1, tmp_path_factory.mktemp("alone"))[0]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_ranks_find_what_one_process_finds(alone, tmp_path, count):
    reports = run(count, tmp_path)
    assert len(reports) == count
    for report in reports:
        same = ("plain", "restarts", "bounds", "saved", "saved again", "failed")
        assert {name: report[name] for name in same} == {name: alone[name] for name in same}
        assert report["saved again"]["x"] == report["saved"]["x"]
        assert report["gathered"] == [[[2.0 * i, 2.0 * i + 1] for i in range(7)], [count - 1, 0]]
        assert report["interrupted"] == "Interrupted: the work was asked to stop"
        assert report["of first"] == [[0, "text"], "ZeroDivisionError: division by zero"]
        assert report["stopped"] == ["requested", 4, reports[0]["stopped"][2]]
        assert report["metrics"].startswith(
            "ValueError: expected fitness alone of an objective that ranks share"
        )
        assert report["seedless"] == reports[0]["seedless"]
    if count == 3:
        assert reports[0]["too few"] == "ValueError: expected a candidate for each of 3 ranks, got 2"


def test_one_process_is_all_ranks():
    with ranks.joined():
        assert (ranks.count(), ranks.rank(), ranks.share(5)) == (1, 0, slice(0, 5))
        assert ranks.from_first(lambda: "a") == ranks.together(lambda: "a") == "a"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_shares_are_even_and_leave_nothing_out(monkeypatch, count):
    monkeypatch.setattr(ranks, "count", lambda: count)
    for total in (0, 1, 5, 12, 257):
        shares = [ranks.share(total, number) for number in range(count)]
        rows = [row for each in shares for row in range(each.start, each.stop)]
        assert rows == list(range(total))
        sizes = [each.stop - each.start for each in shares]
        assert max(sizes) - min(sizes) <= 1
