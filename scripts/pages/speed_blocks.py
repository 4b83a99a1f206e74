"""Blocks of README and docs: the speed of operators, engines and environments."""

import re
import statistics

from measure.provenance import RESULTS
from measure.sampling import LABELS, median
from measure.table import TOOLS

from pages.result_files import figures, load, load_all, make_table, with_provenance
from pages.wording import count, digits, markdown
from tetris.training.run_folder import read_records

_GPU = "h200"
_LARGE = ("eager", "compile", "ours", "rows", "fill")
_SPEEDUPS = {
    ("", "eager"): "independent noise, over plain PyTorch",
    ("", "compile"): "independent noise, over `torch.compile`",
    ("shared.", "shared_eager"): "shared noise, over plain PyTorch",
    ("shared.", "shared_compile"): "shared noise, over `torch.compile`",
    ("shared.", "article"): "shared noise, over the article's kernel",
    ("article.", "shared_compile"): "the article's kernel over `torch.compile`",
}
"""Labels of rows, by two methods as in the names of figures: ours, and the one it is compared
with. The empty method is independent noise by our operator."""

_SPEEDUP_CLOCKS = {"": "called one by one", "_graph": "in a CUDA graph"}
_DRAWN_DIM = 100
_PER_SECOND = "10x20.decisions_per_second"
_ENGINES = {
    f"rollout.python.dt.{_PER_SECOND}": "reference implementation (Python)",
    f"rollout.cpu.dt.{_PER_SECOND}_per_core": "C++ with the processor's vectors, one core",
    f"rollout.cpu.dt.{_PER_SECOND}_all": "the same on all cores",
    f"rollout.cuda.dt.{_PER_SECOND}": "CUDA",
    f"rollout.cuda.dt_columns.{_PER_SECOND}": "CUDA, `best`",
    "rollout.cuda.single_game.us_per_decision": "CUDA, one game",
}
_ENVIRONMENTS = {
    "python": "`gymnasium.make`: Python, one game",
    "cpu.numpy": 'C++ engine, `output="numpy"`',
    "cpu.torch": 'C++ engine, `output="torch"`',
    "cpu.dt": 'C++ engine, `output="torch"`, `features="dt"`',
    "cuda": "CUDA engine, torch tensors on the GPU",
    "cuda.dt": 'CUDA engine, `features="dt"`',
}
_ENVIRONMENT_FIGURE = re.compile(
    r"env\.(?P<engine>[a-z.]+?)(\.(?P<games>\d+))?\.placements_per_second"
)
_GENERATIONS = {
    "128x20": "128 candidates, 20 parameters",
    "1000x100": "1,000 candidates, 100 parameters",
}
_SHAPES = {
    (-1, "1024x100"): "1,024 x 100",
    (-1, "1024x128x20"): "1,024 problems of 128 x 20",
    (0, "12x20"): "12 x 20",
    (0, "1000x10"): "1,000 x 10",
}
_SEARCHES = {
    "cem.generation.graph_compiled": "`cem`, diagonal, CUDA graph, objective by "
    "`torch.compile`",
    "cem.generation.graph": "`cem`, diagonal, CUDA graph",
    "cem.generation.eager": "`cem`, diagonal",
    "cem_cma.generation.eager": "`cem`, the default: full covariance",
    "torch.generation.graph": "ten lines of PyTorch, CUDA graph",
    "torch.generation.eager": "ten lines of PyTorch",
    "evotorch.generation.eager": "evotorch, CEM",
    "evox.generation.eager": "EvoX, SNES",
    "cmaes_full.generation.eager": "cmaes, CMA",
    "cma_full.generation.eager": "pycma",
}
_DRIVER = {
    "fed_per_s.{}": "candidates per second",
    "simulated_utilisation.{}.0.01s": "10,000 workers busy, simulated: 10 ms",
    "simulated_utilisation.{}.0.1s": "100 ms",
    "simulated_utilisation.{}.1s": "1 s",
}
"""Headings of columns, by the name of the figure for a number of parameters."""

_PEERS = {
    "Jumanji, 1,024 games of 10x10": ("ours.1024", r"jumanji\.\w+\.1024"),
    "Tetris-Gymnasium, one game, hard drops on 10x10": ("ours.1", r"tetris_gymnasium\.1"),
    "Tetris-Gymnasium, one game, placements by its wrapper on 10x10": (
        "ours.1",
        r"\w+_grouped\.1",
    ),
    **{
        f"evosax {name}, {label}": (f"cem_auto.{shape}", rf"evosax_{name}\.\w+\.{shape}")
        for shape, label in _GENERATIONS.items()
        for name in ("SimpleES", "Sep_CMA_ES")
    },
}
"""Comparisons with peers: the name of our speed, and a pattern for the names of theirs."""


def sampling_claim() -> str:
    """Return a sentence on the time of a call on the CPU, and a table of mean speed-ups.

    A row of the table compares two methods. A column is a way to time calls: one by one, or in
    a CUDA graph.
    """
    result = load(f"{_GPU}/sampling")
    measured = figures(result, "sampling.")

    def cell(methods: tuple[str, str], clock: str) -> str | None:
        # An example of a figure is "article.shared.mean_speedup_over_shared_eager_graph". Here
        # "shared." is the method, "shared_eager" the other one, and "_graph" the clock. The
        # name of our default method is empty.
        method, other = methods
        speedup = measured.get(f"article.{method}mean_speedup_over_{other}{clock}")
        return None if speedup is None else f"{speedup:.2f}"

    host = f"""A call keeps the CPU for {measured["host_us"]:.0f} us, one of plain PyTorch for \
{measured["eager.host_us"]:.0f} us, one of `torch.compile` for \
{measured["compile.host_us"]:.0f} us."""
    corner = "times as fast, mean over d = 10 to 5,000, 1,024 samples"
    table = make_table(corner, result, columns=_SPEEDUP_CLOCKS, rows=_SPEEDUPS, cell=cell)
    return f"{host}\n\n{table}"


def sampling_time() -> str:
    """Return a sentence that compares the time of sampling with the time of a generation.

    Both times were measured on a CPU. The sampling benchmark draws more samples, of more
    dimensions, than a generation of training. If it is much faster than a generation even so,
    sampling is a negligible part of training.
    """
    sampling = load("epyc-2core/sampling")
    training = load("epyc-2core/training")
    # Of the measured sizes, take the populations with `_DRAWN_DIM` dimensions.
    size = next(size for size in sampling.data["sizes"] if size["dim"] == _DRAWN_DIM)
    sampling_us = median(size, "wall", "ours")
    run = training.data["runs"][0]
    population = run["config"]["population"]
    parameters = len(run["weights"])
    records = read_records(RESULTS / f"epyc-2core/training-seed{run['seed']}.jsonl")
    generation_seconds = statistics.median(record["seconds"] for record in records)
    words = f"""In training, sampling is negligible: {sampling.data["samples"]:,} samples of \
{_DRAWN_DIM} dimensions take {sampling_us:.0f} us on a CPU; a generation of \
`quick`, drawing {population} samples of {parameters} dimensions, takes \
{generation_seconds:.2f} s."""
    return with_provenance(words, sampling, training)


def sampling_large() -> str:
    """Return a Markdown table of the speeds of methods at large sizes.

    A cell has the gigabytes per second that the method writes, and its speed divided by that of
    torch's ``fill_``.
    """
    result = load(f"{_GPU}/sampling")
    sizes = result.data["large"]

    def cell(name: str, index: int) -> str:
        size = sizes[index]
        time = median(size, "event", name)
        fill_time = median(size, "event", "fill")
        # Times are in microseconds, and 1,000 bytes per microsecond are 1 GB/s.
        return f"{size['bytes'] / 1e3 / time:,.0f} ({fill_time / time:.0%})"

    columns = {index: f"d = {size['dim']:,}" for index, size in enumerate(sizes)}
    rows = {name: LABELS[name] for name in _LARGE}
    corner = "GB/s written (share of fill_)"
    return make_table(corner, result, columns=columns, rows=rows, cell=cell)


def sampling_steps() -> str:
    """Return a Markdown table of the speeds of the article's kernel and of our operators.

    A row is a method. The first column is the time for which a call keeps the CPU busy. The
    second one is the speed at a large size divided by the speed of torch's ``fill_``.
    """
    result = load(f"{_GPU}/sampling")
    measured = figures(result, "sampling.")
    # The headings of the columns, by the names of their figures. In a name, {method} stands for
    # the key of the row. The key of our default method is empty.
    columns = {
        "{method}host_us": "us that a call keeps the CPU",
        "large.{method}fraction_of_fill": "speed as a share of `fill_`'s, d = 1,000,000",
    }
    rows = {
        "article.": "the article's kernel",
        "shared.": "`sample_normal(shared_noise=True)`",
        "": "`sample_normal`",
    }

    def cell(method: str, figure: str) -> str:
        return digits(measured[figure.format(method=method)])

    return make_table("1,024 samples", result, columns=columns, rows=rows, cell=cell)


def generation_speed() -> str:
    """Return a Markdown table of the microseconds of a generation, on a GPU and on a CPU.

    A row is a search. A column is a machine and the size of a problem.
    """
    results = load_all("generation")
    # `load_all` sorts the results: number 0 is without a GPU, and number -1 has a GPU.
    cpu_result = results[0]
    gpu_result = results[-1]
    columns = {}
    for (machine, shape), label in _SHAPES.items():
        columns[machine, shape] = f"{results[machine].hardware}, {label}"

    def cell(name: str, column: tuple[int, str]) -> str | None:
        machine, shape = column
        return results[machine].us(name, shape)

    return make_table(
        "us per generation",
        gpu_result,
        cpu_result,
        columns=columns,
        rows=_SEARCHES,
        cell=cell,
    )


def peers() -> str:
    """Return a Markdown table of our speeds divided by those of other packages, on one core.

    A speed is the number of placements or generations per second of processor time. If a
    package has several speeds, the highest one counts. The line below the table has the
    versions of the packages.
    """
    result = load_all("peers")[0]  # One machine has measured it.
    speeds = {}
    for figure, speed in result.data["of_processor_time"].items():
        # "peers.ours.1024.placements_per_second" becomes "ours.1024".
        name = figure.removeprefix("peers.").rpartition(".")[0]
        speeds[name] = speed
    rows = []
    # `_PEERS` has the name of our speed, and a regular expression that matches the names of all
    # speeds of the other package.
    for label, (our_name, peer_pattern) in _PEERS.items():
        peer_speeds = []
        for name, speed in speeds.items():
            if re.fullmatch(peer_pattern, name):
                peer_speeds.append(speed)
        if peer_speeds:
            factor = speeds[our_name] / max(peer_speeds)
            rows.append([label, f"{factor:.2g}"])
    versions = ", ".join(f"{name} {version}" for name, version in result.data["peers"].items())
    table = markdown(["one core", "ours is faster by a factor of"], rows)
    return with_provenance(f"{table}\n\n{versions}.", result)


def rollout() -> str:
    """Return a Markdown table of the engines' decisions per second.

    A row is an engine. A column is a machine.
    """
    results = {result.name: result for result in load_all("rollout")}

    def cell(name: str, machine: str) -> str | None:
        speed = results[machine].figures.get(name)
        if not speed:  # The engine was not measured on this machine.
            return None
        if name.endswith("us_per_decision"):  # The figure is a time.
            speed = 1e6 / speed
        return count(speed)

    # The headings of the columns: the GPU beside the processor, or the processor alone.
    machines = {}
    for name, result in results.items():
        machines[name] = " beside ".join(dict.fromkeys((result.hardware, result.cores)))
    return make_table(
        "decisions/s, dt20 on 10x20",
        *results.values(),
        columns=machines,
        rows=_ENGINES,
        cell=cell,
    )


def equality() -> str:
    """Return a paragraph on the comparison of CPU and GPU, and on compute-sanitizer.

    It gives the numbers of compared decisions and of differences, and the number of errors that
    the tools of compute-sanitizer have found. If several machines made a measurement, the
    latest result counts.
    """
    result = load_all("equality")[-1]
    compared = figures(result, "equality.")
    tool_results = []
    errors = 0.0
    for tool in TOOLS:
        tool_result = load_all(tool)[-1]
        tool_results.append(tool_result)
        errors += tool_result.figures[f"sanitizer.{tool}.errors"]
    words = f"""Played on the CPU and on the GPU: {count(compared["decisions"])} decisions in \
{compared["configurations"]:,} configurations of features, board, rule, pieces, weights and \
streams. Differences in lines, games or boards: {compared["differences"]}. Under \
compute-sanitizer's {", ".join(TOOLS)} the GPU tests find {errors:.0f} errors in our kernels."""
    return with_provenance(words, result, *tool_results)


def cluster() -> str:
    """Return sentences on workers and on the journal, and a table on the driver of a search."""
    result = load("xeon-16core/cluster")
    measured = figures(result, "cluster.")
    words = f"""Without a model exponential durations keep {result.data["workers"]} \
workers busy {measured["utilisation.synchronous"]:.0%} of the time, with `asynchronous=True` \
{measured["utilisation.asynchronous"]:.0%}. A checkpoint of 1,000 parameters grows by \
{measured["journal.bytes"] / 1e3:.1f} KB per candidate, written in \
{measured["journal.write_us"]:.0f} us, read in {measured["journal.read_us"]:.0f}."""

    def cell(dim: int, name: str) -> str:
        """Return a figure of the driver. In its name {} stands for the number of parameters."""
        value = measured[name.format(dim)]
        # A utilisation is the share of their time in which workers are busy.
        return f"{value:.0%}" if "utilisation" in name else f"{value:,.0f}"

    dims = {10: "10", 1000: "1,000"}
    table = make_table("parameters", result, columns=_DRIVER, rows=dims, cell=cell)
    return f"{words}\n\n{table}"


def environments() -> str:
    """Return a Markdown table of the environments' placements per second in random play.

    A row is an environment on a machine. For machines with a GPU the table has only the rows of
    the GPU, although their CPUs were measured, too.
    """
    results = load_all("env")
    rows = []
    for result in results:
        has_gpu = "gpu" in result.machine
        for figure, speed in result.figures.items():
            # An example of a figure's name is "env.cpu.torch.1024.placements_per_second". The
            # engine is "cpu.torch", and it played 1,024 games.
            match = _ENVIRONMENT_FIGURE.fullmatch(figure)
            assert match is not None, figure
            engine = match["engine"]
            is_on_gpu = engine.startswith("cuda")
            if is_on_gpu == has_gpu:
                games = int(match["games"] or 1)  # A name without a number means one game.
                rows.append([_ENVIRONMENTS[engine], f"{games:,}", count(speed)])
    header = ["environment", "games", "placements/s, median"]
    return with_provenance(markdown(header, rows), *results)
