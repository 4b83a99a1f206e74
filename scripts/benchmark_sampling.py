"""Time the ways to draw a population, by its number of dimensions, in a few seconds.

python scripts/benchmark_sampling.py --dims 10 500 5000
python scripts/benchmark_sampling.py --compile --plot sampling.png

Noise is independent, or one value is shared by all dimensions of a sample. Times are medians in
microseconds; in brackets is how many times as fast sample_normal is.
"""

from collections.abc import Sequence

from measure.__main__ import run

from tetris.commands.arguments import add_device
from tetris.commands.command_line import Parser, one_line_errors, path_ending, up_to
from tetris.evaluation.comparison import table
from tetris.play.devices import choose_device

DIMS = (10, 100, 500, 1000, 2500, 5000)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each kind of noise, and draw them."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--dims",
        type=up_to(10_000_000),
        nargs="+",
        metavar="D",
        default=DIMS,
        help=f"(default: {' '.join(map(str, DIMS))})",
    )
    parser.add_argument(
        "--samples",
        type=up_to(1 << 20),
        default=1024,
        metavar="N",
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile, too: seconds for every size; on a GPU",
    )
    add_device(parser, ("auto", "cuda", "cpu"), what="what is measured")
    parser.add_argument(
        "--plot",
        type=path_ending(".png", ".svg", ".pdf"),
        metavar="FILE",
        help="draw time and speed-up",
    )
    arguments = parser.parse_args(argv)
    with one_line_errors():
        device = choose_device(arguments.device)
        if arguments.plot is not None:
            from tetris.report.learning_curve import new_figure, save_figure

            figure = new_figure(10.0, 7.0)
    from measure import sampling
    from measure.timing import Plan, latency_times, wall_times

    excluded = set() if arguments.compile else {"compile", "shared_compile"}
    if arguments.samples > sampling.ARTICLE_SAMPLES:
        excluded.add("article")
    methods = [method for method in sampling.METHODS if method.name not in excluded]
    clock = "latency" if device == "cuda" else "wall"
    sizes = []  # The times of all methods, by number of dimensions.
    for dim in sorted(set(arguments.dims)):
        functions = sampling.calls(dim, device, arguments.samples, methods)
        if device == "cuda":
            times = latency_times(functions, Plan(5, 20, 1))
        else:
            times = wall_times(functions, Plan(3, 1, 0))
        sizes.append({"dim": dim, clock: times})
    # A table for each kind of noise: our method first, then the others that draw this noise.
    for ours, (noise, others) in sampling.NOISES.items():
        names = [name for name in (ours, *others) if name in sizes[0][clock]]
        rows = []
        for size in sizes:
            our_time = sampling.median(size, clock, ours)
            row = [f"{size['dim']:,}"]
            for name in names:
                time = sampling.median(size, clock, name)
                row.append(f"{time:,.1f} ({time / our_time:.2f})")
            rows.append(row)
        header = [f"d, {noise}", *(sampling.LABELS[name] for name in names)]
        print(table(header, rows), end="\n\n")
    if arguments.plot is not None:
        sampling.draw_sizes(figure, sizes, [(clock, ours) for ours in sampling.NOISES])
        save_figure(figure, arguments.plot)
    return 0


if __name__ == "__main__":
    run(main)
