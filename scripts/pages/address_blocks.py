"""What README and the notebook say once the project has a public address."""

from kernels.version import REPOSITORY


def clone() -> str:
    """Return README's words before its first commands, with the public address if any."""
    if not REPOSITORY:
        return "Not on PyPI: `git clone` this page's address, or unpack its ZIP; in the folder:"
    return f"`git clone {REPOSITORY}`; ask at {REPOSITORY}/issues. In its folder:"


def badge() -> str:
    """Return a badge that opens the notebook in Colab; empty if the project is not on GitHub.

    Colab opens notebooks of public repositories on GitHub.
    """
    _, _, repository = REPOSITORY.partition("https://github.com/")
    if not repository:
        return ""
    colab = "https://colab.research.google.com"
    notebook = f"{colab}/github/{repository}/blob/main/docs/tetris.ipynb"
    return f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({notebook})"
