"""Write the generated blocks of README and docs from benchmarks/results, and draw pictures.

python scripts/pages/render.py            # writes them, and shortens the notebook's lines
python scripts/pages/render.py --check    # exits with 1 if the text of a page differs

cog generates the blocks: between [[[cog and ]]] a page calls a public function of one of the
`*_blocks` modules. docs/play.html is the page of `python -m tetris play`, on which visitors can
play without installing anything. `poster.py` generates docs/poster.html.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from cogapp import Cog

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from measure import ROOT

    from kernels.support.files import write_text
    from pages import (
        address_blocks,
        api_blocks,
        literature_blocks,
        optimiser_blocks,
        score_blocks,
        speed_blocks,
    )
    from pages.pictures import PICTURES
    from pages.poster import poster_page
    from tetris import Rules, published
    from tetris.commands.command_line import Parser, run
    from tetris.view.play_page import play_page

DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "tetris.ipynb"
WIDTH = 100  # characters of a line of a notebook's outputs
BLOCKS = (
    address_blocks,
    api_blocks,
    literature_blocks,
    optimiser_blocks,
    score_blocks,
    speed_blocks,
)


def render(page: Path) -> str:
    """Return the text of a page with every block generated again."""
    names: dict[str, Any] = {}
    for module in BLOCKS:
        names |= {name: value for name, value in vars(module).items() if name[0] != "_"}
    output = io.StringIO()
    Cog().process_file(io.StringIO(page.read_text()), output, str(page), globals=names)
    # In links of the blocks, {root} stands for the path from the page to the root.
    root = os.path.relpath(ROOT, page.parent)
    return output.getvalue().replace("{root}", "" if root == "." else f"{root}/")


def page_texts() -> dict[Path, str]:
    """Return the texts of README and of the pages of docs, by file."""
    texts = {page: render(page) for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]}
    play = play_page(published("best"), Rules())
    return texts | {DOCS / "play.html": play, DOCS / "poster.html": poster_page()}


def with_short_lines(notebook: str) -> str:
    """Return the text of a notebook with its badge, and its outputs split into short lines.

    Without this, a picture would be a single line, and grep would print pages of base64.
    """
    content = json.loads(notebook)
    # The badge is the second line of the first cell, below the title.
    content["cells"][0]["source"][1] = f"{address_blocks.badge()}\n"
    for cell in content["cells"]:
        for output in cell.get("outputs", ()):
            for kind, lines in output.get("data", {}).items():
                text = "".join(lines)
                # A notebook joins the lines again, so a line may end anywhere.
                output["data"][kind] = [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n"


def main() -> int:
    """Write the pages and the pictures, or with --check only compare the pages.

    Without --check, the notebook is also written again, with short lines.

    Returns:
        The exit status: 1 if --check is given and a page differs, otherwise 0.
    """
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a page differs"
    )
    arguments = parser.parse_args()
    is_outdated = False
    for page, text in page_texts().items():
        if page.exists() and text == page.read_text():
            continue
        # The page differs from the text that is generated now.
        is_outdated = True
        path = page.relative_to(ROOT)
        if arguments.check:
            print(f"{path} differs: run python scripts/pages/render.py", file=sys.stderr)
        else:
            write_text(page, text)
            print(f"wrote {path}")
    if arguments.check:
        return int(is_outdated)
    write_text(NOTEBOOK, with_short_lines(NOTEBOOK.read_text()))
    for name, draw in PICTURES.items():
        draw(DOCS / name)
    return 0


if __name__ == "__main__":
    run(main)
