import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import cem
from cem.run.ranks import shared
from kernels.support import ranks

ROOT = str(Path(cem.__file__).parents[1])
SCRIPT = str(Path(__file__).with_name("shared_searches.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]


def run(count, folder):
    """The reports of the searches in shared_searches.py, of each rank."""
    launch = [*TORCHRUN, f"--nproc-per-node={count}"] if count > 1 else []
    done = subprocess.run(
        [sys.executable, *launch, SCRIPT, str(folder)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.slow
def test_ranks_find_what_one_process_finds(tmp_path):
    count = 3
    (tmp_path / "alone").mkdir()
    (alone,), reports = run(1, tmp_path / "alone"), run(count, tmp_path)
    for report in reports:
        same = (
            "plain",
            "restarts",
            "bounds",
            "known",
            "saved",
            "saved again",
            "failed",
            "list",
        )
        assert {name: report[name] for name in same} == {name: alone[name] for name in same}
        assert report["saved again"]["x"] == report["saved"]["x"]
        assert report["interrupted by a callback"] == ["requested", True]
        assert report["trainers"] == ["time_limit", "requested"]
        assert report["metrics"].startswith(
            "ValueError: expected fitness alone of an objective"
        )
        assert report["seedless"] == reports[0]["seedless"]


SET = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MASTER_PORT": None}, "environment variable MASTER_PORT expected, but not set"),
        ({"CEM_TETRIS_RANK_TIMEOUT": "0.0"}, "in seconds, from 1 to 604,800, got 0.0$"),
    ],
)
def test_what_torchrun_and_the_user_set_must_be_there_and_right(monkeypatch, changes, message):
    for name, value in {**SET, **changes}.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message), ranks.joined():
        pass


def test_ctrl_c_ends_a_rank_that_waits_for_the_others():
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, **SET, "MASTER_PORT": str(port), "PYTHONPATH": ROOT}
    code = "from kernels.support import ranks\nwith ranks.joined(): pass"
    # What starts the tests may ignore SIGINT, as shells do for what runs in the background.
    heed = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **heed) as waiting:
        until = time.monotonic() + 60
        failed = 1
        while failed and time.monotonic() < until:
            with socket.socket() as client:
                failed = client.connect_ex(("localhost", port))
            time.sleep(0.05)
        time.sleep(0.3)
        waiting.send_signal(signal.SIGINT)
        try:
            assert waiting.wait(5) == -signal.SIGINT
        finally:
            waiting.kill()


def test_one_process_is_all_ranks():
    with ranks.joined():
        assert (ranks.count(), ranks.rank(), ranks.share(5)) == (1, 0, slice(0, 5))
        assert ranks.broadcast(lambda: "a") == ranks.run_collective(lambda: "a") == "a"


@pytest.mark.parametrize("count", [1, 3, 12])
def test_shares_are_even_and_leave_nothing_out(monkeypatch, count):
    monkeypatch.setattr(ranks, "count", lambda: count)
    for total in (0, 1, 5, 12, 257):
        shares = [ranks.share(total, number) for number in range(count)]
        rows = [row for each in shares for row in range(each.start, each.stop)]
        assert rows == list(range(total))
        sizes = [each.stop - each.start for each in shares]
        assert max(sizes) - min(sizes) <= 1


def test_fitness_travels_as_float64():
    evaluate = shared(lambda x, generation: x.sum(1))
    assert evaluate(torch.ones(4, 2), 0).dtype is torch.float64


def test_ranks_share_the_problems_of_a_batch():
    evaluate = shared(lambda x, generation: x.sum(-1))
    assert evaluate(torch.ones(4, 3, 2), 0).tolist() == [[2.0] * 3] * 4


def test_an_asynchronous_search_is_not_shared(monkeypatch):
    monkeypatch.setattr("cem.run.ranks.count", lambda: 2)
    with pytest.raises(ValueError, match="expected asynchronous=False of a search that ranks"):
        cem.minimize(sum, [0.0], 1.0, workers=2, asynchronous=True, distributed=True)
