"""A job of SLURM, or a process without SLURM, for every candidate: see docs/cluster.md."""

import numpy as np
import submitit

from cem import minimize

executor = submitit.AutoExecutor(folder="jobs")  # on a disk that all nodes see
executor.update_parameters(timeout_min=60, cpus_per_task=1)


def design(x):
    """Return the squared distance from (3, ..., 3)."""
    return float(((x - 3.0) ** 2).sum())


def map_jobs(task, candidates):
    """Submit an array of jobs, one for each candidate, and wait for their results."""
    jobs = executor.map_array(task, candidates)
    return (job.result() for job in jobs)


result = minimize(
    design, np.zeros(5), 1.0, workers=map_jobs, budget=400, checkpoint="runs/submitit"
)
print(result.fun)
