import json
import os
import subprocess
import sys
from pathlib import Path

import cem


def test_a_run_killed_at_random_moments_is_bit_for_bit_the_run_never_stopped(tmp_path):
    script = Path(__file__).with_name("kill_and_resume.py")
    command = [sys.executable, str(script), str(tmp_path), "400", "25"]
    paths = os.pathsep.join([str(Path(cem.__file__).parents[1]), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["killed"] == report["whole"]
    assert [line["generation"] for line in report["whole"][1]] == list(range(1, 401))
    # The kills hit the run between its first and its last generation.
    assert len({step for step in report["steps"] if 0 < step < 400}) >= 10, report["steps"]
