"""Write the generated blocks of README and docs and draw their pictures from benchmarks/results.

python scripts/pages/render.py            # writes them
python scripts/pages/render.py --check    # exit 1 where the text of a page differs

A block is the output of cog: its page calls a function of blocks.py between [[[cog and ]]].
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from cogapp import Cog

from kernels.files import write_text
from pages import blocks
from pages.pictures import draw_pictures
from pages.result_files import ROOT
from tetris.commands.command_line import Parser

DOCS = ROOT / "docs"


def rendered(page: Path) -> str:
    """Return the text of a page with every block generated again."""
    names = {name: getattr(blocks, name) for name in blocks.__all__}
    output = io.StringIO()
    Cog().process_file(io.StringIO(page.read_text()), output, str(page), globals=names)
    root = os.path.relpath(ROOT, page.parent)
    return output.getvalue().replace("{root}", "" if root == "." else f"{root}/")


def main() -> int:
    """Write the pages and pictures, or compare the pages; the exit code."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a page is out of date"
    )
    arguments = parser.parse_args()
    texts = {page: rendered(page) for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]}
    old = [page for page, text in texts.items() if page.read_text() != text]
    for page in old:
        if arguments.check:
            print(f"{page.relative_to(ROOT)} differs from the result files", file=sys.stderr)
        else:
            write_text(page, texts[page])
            print(f"wrote {page.relative_to(ROOT)}")
    if arguments.check:
        return 1 if old else 0
    draw_pictures(DOCS)
    print(f"drew the pictures of {DOCS.relative_to(ROOT)}")
    return 0
