"""A search in the terminal, in three seconds: python -m cem."""

from __future__ import annotations

import os
import shutil
import sys
import time

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    import torch

    from cem import CrossEntropyMethod

GENERATIONS, PAUSE = 30, 0.1  # seconds
_X, _Y = (-2.1, 2.1), (-1.0, 3.2)
_SHADES = (16, 17, 18, 19, 20, 26, 32, 38, 44, 50)  # of 256 colours, from high to low
_MARKS = {"candidate": "\x1b[97m·", "elite": "\x1b[93m●", "mean": "\x1b[91m✚", "optimum": "\x1b[97m★"}


def valley(points: torch.Tensor) -> torch.Tensor:
    """Return Rosenbrock's function with a tenth of its steepness, shape (...,), of points, (..., 2)."""
    x, y = points.unbind(-1)
    return (1 - x).square() + 10 * (y - x.square()).square()


def picture(marks: dict[str, torch.Tensor], columns: int, rows: int) -> str:
    """Return the valley, the brighter the lower, with points on it, those named last in front."""
    grid = torch.cartesian_prod(torch.linspace(_Y[1], _Y[0], rows), torch.linspace(*_X, columns)).flip(-1)
    levels = (2.4 - valley(grid).log10()).clamp(0.0, 4.3) / 4.4 * len(_SHADES)
    shades = levels.int().reshape(rows, columns).tolist()
    drawn = [[" "] * columns for _ in range(rows)]
    for name, points in marks.items():
        for x, y in points.reshape(-1, 2).tolist():
            column = round((x - _X[0]) / (_X[1] - _X[0]) * (columns - 1))
            row = round((_Y[1] - y) / (_Y[1] - _Y[0]) * (rows - 1))
            if 0 <= row < rows and 0 <= column < columns:
                drawn[row][column] = _MARKS[name]
    lines = zip(shades, drawn, strict=True)
    return "\n".join(
        "".join(f"\x1b[48;5;{_SHADES[shade]}m{mark}" for shade, mark in zip(*line, strict=True)) + "\x1b[0m"
        for line in lines
    )


def main() -> None:
    """Draw a search, or print a line a generation where there is no terminal with colours."""
    search = CrossEntropyMethod(torch.tensor([-1.6, 2.8]), 0.2, 24, maximize=False, backend="torch", seed=1)
    draws = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    )
    columns, lines = shutil.get_terminal_size()
    print("\x1b[2J" * draws, end="")
    for _ in range(GENERATIONS):
        candidates = search.ask()
        fitness = valley(candidates)
        order, mean = fitness.argsort(), search.mean
        marks = {
            "optimum": torch.ones(2),
            "candidate": candidates,
            "elite": candidates[order[:6]],
            "mean": mean,
        }
        search.tell(candidates, fitness)
        x, y = mean.tolist()
        told = f"generation {search.generation:2}: best {fitness.min():.1e}, mean ({x:5.2f}, {y:5.2f})"
        if draws:
            print(f"\x1b[H{picture(marks, min(columns, 78), min(lines - 3, 21))}\n{told}\x1b[K", flush=True)
            time.sleep(PAUSE)
        else:
            print(told)
    print("the optimum is (1, 1); of a function of yours: cem.minimize(f, mean, std)")


if __name__ == "__main__":
    with one_line_interrupts():
        main()
