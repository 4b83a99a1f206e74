"""A demonstration in the terminal, three seconds long: python -m cem."""

import os
import shutil
import sys
import time

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    import argparse

    import torch

    from cem import CrossEntropyMethod
    from kernels.support.files import discard_stdout, prepare_streams

_UPPER_LEFT = torch.tensor([-2.1, 3.2])
_LOWER_RIGHT = torch.tensor([2.1, -1.0])
_SHADES = (16, 17, 18, 19, 20, 26, 32, 38, 44, 50)  # terminal colours, from high to low points
OPTIMUM = "\x1b[97m★"
CANDIDATE = "\x1b[97m·"
ELITE = "\x1b[93m●"
MEAN = "\x1b[91m✚"


def valley(points: torch.Tensor) -> torch.Tensor:
    """Return a flat variant of the Rosenbrock function at points of shape (..., 2)."""
    x, y = points.unbind(-1)
    return (1 - x).square() + 10 * (y - x.square()).square()


def picture(marks: dict[str, torch.Tensor], columns: int, rows: int) -> str:
    """Return a picture of the valley as text, with marked points.

    Every character is a mark or a blank on a coloured background. The background is brighter
    where the function is lower.

    Args:
        marks: A dictionary from a character to the points that it marks, shape (..., 2). Later
            marks cover earlier ones.
        columns: The width of the picture in characters.
        rows: The height of the picture in characters.
    """
    # A cell is (column, row). A linear map from points to cells maps the upper left corner of
    # the area to the cell (0, 0), and the lower right corner to the last cell.
    size = _LOWER_RIGHT - _UPPER_LEFT
    last_cell = torch.tensor([columns - 1, rows - 1])
    mark_of_cell = {}
    for mark, points in marks.items():
        cells_of_points = ((points - _UPPER_LEFT) / size * last_cell).round().int()
        for column, row in cells_of_points.reshape(-1, 2).tolist():
            mark_of_cell[column, row] = mark

    # All cells, one row after another from the top. The inverse map gives their points.
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(-1)
    points_of_cells = _UPPER_LEFT + size * cells / last_cell
    heights = valley(points_of_cells).log10()

    # Heights between 10^2.4 and 10^-1.9, a range of 4.3 exponents, have different shades. The
    # divisor is slightly larger than the range, so that the greatest index is valid.
    depth = (2.4 - heights).clamp(0.0, 4.3)
    shade_indices = (depth / 4.4 * len(_SHADES)).int().tolist()

    parts = []
    for index, (column, row) in zip(shade_indices, cells.tolist(), strict=True):
        mark = mark_of_cell.get((column, row), " ")
        parts.append(f"\x1b[48;5;{_SHADES[index]}m{mark}")  # sets the background colour
        if column == columns - 1:
            parts.append("\x1b[0m\n")  # resets the colours and ends the line
    return "".join(parts)


def main() -> None:
    """Search for the minimum of the valley, and show each generation.

    Each generation prints a line. A terminal with colours, Unicode and room also shows a moving
    picture.
    """
    mean = torch.tensor([-1.6, 2.8])
    search = CrossEntropyMethod(mean, 0.2, 24, maximize=False, backend="torch", seed=1)
    has_colours = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    has_marks = "utf" in sys.stdout.encoding.lower()
    columns, lines = shutil.get_terminal_size()
    has_room = columns > 1 and lines > 4  # two rows and the three lines below
    has_picture = sys.stdout.isatty() and has_colours and has_marks and has_room
    if has_picture:
        print("\x1b[2J", end="")  # clears the terminal
    for generation in range(1, 31):
        candidates = search.ask()
        mean = search.mean
        fitness = valley(candidates)
        elites = candidates[fitness.argsort()[:6]]
        search.tell(candidates, fitness)
        if has_picture:
            marks = {OPTIMUM: torch.ones(2), CANDIDATE: candidates, ELITE: elites, MEAN: mean}
            valley_picture = picture(marks, columns=min(columns, 78), rows=min(lines - 3, 21))
            print(f"\x1b[H{valley_picture}", end="")  # overwrites the last picture
            time.sleep(0.1)
        line = "generation {:2}: best {:.1e}, mean ({:5.2f}, {:5.2f})"
        print(line.format(generation, fitness.min(), *mean.tolist()), flush=True)
    print("the optimum is (1, 1); for a function of yours: cem.minimize(f, mean, std)")


if __name__ == "__main__":
    with one_line_interrupts():
        argparse.ArgumentParser("python -m cem", description=__doc__).parse_args()
        prepare_streams()
        try:
            main()
        except BrokenPipeError:  # The program that reads the output has exited.
            discard_stdout()
