"""A seed gives the same bits on any processor: digests of short searches, whatever torch is
made to do."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import torch

from cem import CEMConfig, CrossEntropyMethod

CLASSIC = CEMConfig.classic(
    "hyperbolic:0.1",
    smoothing=0.7,
    std_smoothing=0.4,
    relative_std_floor=None,
    mean_averaging=0.5,
)
DIGESTS = [
    "d1ba42197cab934e784c081fe8bbe6d0a406e8abb6decba989ca83bff029a33a",
    "9246acb9195a14d137112438aeeb3b2992746a493606ab72c82b12ae119a09ed",
    "cb1bdfd769627d929b80979c4bfe6ae5f14a8fffcb9efe62b701865d07f6c9ff",
    "1e5425eacefa5ef4b9438966bbf95672ecfc12819460fac203f468aeddcd9380",
]
NO_VECTORS = {
    **{
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
    },
    **{"OMP_NUM_THREADS": "2", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2"},
}
HERE = Path(__file__)


def fitness(x):
    """Sums in one order of IEEE operations, whatever the width of the vectors."""
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for i in range(x.shape[1]):
        total = total + (x[:, i] - i) * (x[:, i] - i)
    return total


def digests():
    found = []
    for dtype in (torch.float32, torch.float64):
        for config, bounds in ((CEMConfig(), None), (CLASSIC, (-2.0, 5.0))):
            options = {"config": config, "bounds": bounds, "dtype": dtype, "seed": 2026}
            options["backend"] = "cpu"
            search = CrossEntropyMethod([3.0] * 37, 2.0, 700, maximize=False, **options)
            for _ in range(25):
                candidates = search.ask()
                search.tell(candidates, fitness(candidates))
            rows = torch.stack([search.mean, search.std, search.averaged_mean, search.best])
            found.append(hashlib.sha256(rows.numpy().tobytes()).hexdigest())
    return found


def test_a_search_has_the_digests_of_every_processor():
    assert digests() == DIGESTS


def test_so_it_has_where_torch_mkl_and_the_c_library_use_no_vectors():
    paths = os.pathsep.join([str(HERE.parents[2]), str(HERE.parent)])
    done = subprocess.run(
        [sys.executable, "-c", "import test_portable; print(*test_portable.digests())"],
        env={**os.environ, **NO_VECTORS, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == DIGESTS
