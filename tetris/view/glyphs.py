"""A font of three by five pixels, for the words in a picture: ASCII in capitals. It needs no font library."""

from __future__ import annotations

import unicodedata

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 3, 5

# Five octal digits a glyph, the rows from the top; the bits of a digit are the three pixels, left to right.
_GLYPHS = {
    **{" ": 0o00000, "-": 0o00700, ".": 0o00002, ",": 0o00024, ":": 0o02020, "/": 0o11244, "+": 0o02720},
    **{"0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71717, "4": 0o55711},
    **{"5": 0o74717, "6": 0o74757, "7": 0o71111, "8": 0o75757, "9": 0o75717},
    **{"A": 0o25755, "B": 0o65656, "C": 0o34443, "D": 0o65556, "E": 0o74647, "F": 0o74644, "G": 0o34553},
    **{"H": 0o55755, "I": 0o72227, "J": 0o11152, "K": 0o55655, "L": 0o44447, "M": 0o57755, "N": 0o65555},
    **{"O": 0o25552, "P": 0o65644, "Q": 0o25573, "R": 0o65655, "S": 0o34216, "T": 0o72222, "U": 0o55557},
    **{"V": 0o55552, "W": 0o55775, "X": 0o55255, "Y": 0o55222, "Z": 0o71247, "_": 0o00007, "?": 0o71302},
    **{"(": 0o12221, ")": 0o42224, "[": 0o64446, "]": 0o31113, "{": 0o32623, "}": 0o62326, "<": 0o12421},
    **{">": 0o42124, "=": 0o07070, "!": 0o22202, "#": 0o57575, "$": 0o36736, "%": 0o51245, "&": 0o25253},
    **{"'": 0o22000, '"': 0o55000, "*": 0o52500, ";": 0o02024, "@": 0o25743, "^": 0o25000, "`": 0o42000},
    **{"|": 0o22222, "~": 0o03600, "\\": 0o44211},
}


def text_pixels(text: str, scale: int) -> npt.NDArray[np.bool_]:
    """Return a line of text as pixels, shape (5 * scale, 4 * scale * characters of `drawn_text`).

    A column is left free behind each; a character that the font lacks is drawn as a question mark.
    """
    drawn = drawn_text(text)
    pixels = np.zeros((HEIGHT, (WIDTH + 1) * len(drawn)), dtype=np.bool_)
    for position, character in enumerate(drawn):
        glyph = _GLYPHS.get(character, _GLYPHS["?"])
        for y in range(HEIGHT):
            for x in range(WIDTH):
                bit = (HEIGHT - 1 - y) * WIDTH + (WIDTH - 1 - x)
                pixels[y, position * (WIDTH + 1) + x] = glyph >> bit & 1
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)


def drawn_text(text: str) -> str:
    """Return a text in capitals, its letters without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).upper()
