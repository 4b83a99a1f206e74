"""Write the generated blocks of README and docs from benchmarks/results, and draw pictures.

python scripts/pages/render.py            # writes them, and shortens the notebook's lines
python scripts/pages/render.py --check    # exit 1 where the text of a page differs

A block is the output of cog: its page calls a public function of one of the `*_blocks` modules
between [[[cog and ]]]. docs/play.html, on which a visitor plays without installing anything, is
the page of `python -m tetris play`; docs/poster.html is from `poster.py`.
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
BLOCKS = (api_blocks, literature_blocks, optimiser_blocks, score_blocks, speed_blocks)


def render(page: Path) -> str:
    """Return the text of a page with every block generated again."""
    names: dict[str, Any] = {}
    for module in BLOCKS:
        names |= {name: value for name, value in vars(module).items() if name[0] != "_"}
    output = io.StringIO()
    Cog().process_file(io.StringIO(page.read_text()), output, str(page), globals=names)
    root = os.path.relpath(ROOT, page.parent)
    return output.getvalue().replace("{root}", "" if root == "." else f"{root}/")


def page_texts() -> dict[Path, str]:
    """Return the texts of README and of the pages of docs, by their files."""
    texts = {page: render(page) for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]}
    play = play_page(published("best"), Rules())
    return texts | {DOCS / "play.html": play, DOCS / "poster.html": poster_page()}


def with_short_lines(notebook: str) -> str:
    """Return the text of a notebook with short lines in its outputs.

    Without it grep prints pages of base64, because a picture is a single line.
    """
    content = json.loads(notebook)
    for cell in content["cells"]:
        for output in cell.get("outputs", ()):
            for kind, lines in output.get("data", {}).items():
                text = "".join(lines)
                output["data"][kind] = [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]
    return f"{json.dumps(content, indent=1, ensure_ascii=False)}\n"


def main() -> int:
    """Write the pages and the pictures, or with --check only compare the pages.

    The exit code is 1 if --check has seen a page that differs, and otherwise 0.
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
