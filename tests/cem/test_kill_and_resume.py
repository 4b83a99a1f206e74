import json
import os
import subprocess
import sys
from pathlib import Path

import cem


def test_a_run_killed_at_random_moments_is_bit_for_bit_the_run_never_stopped(tmp_path):
    script = Path(__file__).with_name("kill_and_resume.py")
    command = [sys.executable, str(script), str(tmp_path), "400", "25"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cem.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["same"]
    # The kills did hit running runs, and between different checkpoints.
    hits = {step for step in report["steps"] if step is not False and 0 < step < report["generations"]}
    assert len(hits) >= 5, report
