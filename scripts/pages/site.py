"""The hook of mkdocs.yml: it adapts links to the site, and adds pages with docstrings.

On the site a link to a file outside docs/ leads to a copy of the file, and a link to a folder
leads to a page that lists its files. README, the other pages of the root and the notebook are
pages of the site, too.
"""

import importlib
import json
import posixpath
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from kernels.version import REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "start.md",  # to mkdocs a README is a folder's index
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""The pages of the repository's root, and their names on the site."""

NOTEBOOK = "tetris.ipynb"
COPIES = "repository"
"""The folder of the site with copies of other files that pages link to."""

_LINK = re.compile(r"(!?\[[^\[\]]*\]\()([^)\s#]+)([^)\s]*\))")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)


def on_config(config: Any) -> None:
    """Set the address of the repository, to which the header of every page links.

    mkdocs calls this hook before all others.
    """
    if REPOSITORY:
        config.repo_url = REPOSITORY
        config.repo_name = "Repository"


def on_files(files: Any, config: Any) -> Any:
    """Add generated pages and linked files to the site, and return all of its files.

    mkdocs calls this hook with the files of docs/. The generated pages are made from the
    notebook and from docstrings. The linked files are the pages of the repository's root, and
    everything outside docs/ that a page links to, directly or through other pages.
    """
    docs = {f"docs/{name}" for name in files.src_uris if name.endswith(".md")}
    pages = {"tetris.md": notebook_page(ROOT / "docs" / NOTEBOOK)}
    pages |= api_pages(_COMMENT.sub("", _text("docs/api.md")))  # Without HTML comments.
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))

    # A breadth-first search over links. It starts from the pages of docs/ and of the root.
    queue = [*sorted(docs), *PAGES]
    seen = set(queue)
    while queue:
        path = queue.pop(0)
        if path not in docs:  # The site already has the pages of docs/.
            files.append(_file(path, config))
        # The text of a folder is a list of links to its files.
        has_links = path.endswith(".md") or (ROOT / path).is_dir()
        if has_links:
            for target in targets(_text(path), path):
                if target not in seen and not target.startswith("docs/"):
                    seen.add(target)
                    queue.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the text of a page with its links adapted to the site.

    mkdocs calls this hook with every page.
    """
    path = repository_path(page.file.src_uri)
    if path == "docs/index.md":
        page.meta["hide"] = ["navigation", "toc"]
    text = _COMMENT.sub("", markdown)
    page.meta["description"] = description(text)
    return with_site_links(text, path)


def description(text: str) -> str:
    """Return the beginning of a page's first paragraph, for search engines."""
    for paragraph in _FENCE.sub("", text).split("\n\n"):  # Without blocks of code.
        # A heading, a list or a table begins with another character.
        if re.match(r"[A-Z`]", paragraph):
            # Replace a link "[text](target)" by its text, and remove the marks ` and *.
            plain = re.sub(r"!?\[([^\[\]]*)\]\([^)]*\)|[`*]", r"\1", paragraph)
            return textwrap.shorten(plain, 160, placeholder=" ...")
    return ""


def site_path(path: str) -> str:
    """Return the path on the site of a file or folder of the repository."""
    if path == f"docs/{NOTEBOOK}":
        return "tetris.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    return f"{COPIES}/{path}/index.md" if (ROOT / path).is_dir() else f"{COPIES}/{path}"


def repository_path(page: str) -> str:
    """Return the file or folder that a page of the site shows: the inverse of `site_path`."""
    if page.startswith(f"{COPIES}/"):
        return page.removeprefix(f"{COPIES}/").removesuffix("/index.md")
    return {name: path for path, name in PAGES.items()}.get(page, f"docs/{page}")


def targets(text: str, path: str) -> list[str]:
    """Return the files and folders of the repository to which the text of a page links.

    ``path`` is the path of the page in the repository.
    """
    # Every second part is a block of code, whose links do not count.
    links = [match[2] for part in _FENCE.split(text)[::2] for match in _LINK.finditer(part)]
    return [_target(link, path) for link in links if not _external(link)]


def with_site_links(text: str, path: str) -> str:
    """Return the text of a page with its links changed to paths on the site.

    ``path`` is the path of the page in the repository.
    """
    start = posixpath.dirname(site_path(path))

    def site_link(match: re.Match[str]) -> str:
        if _external(match[2]):
            return match[0]
        target = posixpath.relpath(site_path(_target(match[2], path)), start)
        return f"{match[1]}{target}{match[3]}"

    parts = _FENCE.split(text)  # Every second part is a block of code, which is not changed.
    parts[::2] = [_LINK.sub(site_link, part) for part in parts[::2]]
    return "".join(parts)


def api_pages(text: str) -> dict[str, str]:
    """Return a page of documentation for each package of docs/api.md, by its path on the site.

    A page has two parts. The first one is the package's section in ``text``, with links from
    the names to their docstrings. The second one has lines such as "::: cem.minimize", which
    mkdocstrings replaces by the docstrings. If several packages export an object, its docstring
    is only on the page of the first package.

    Args:
        text: The text of docs/api.md. Each section has the heading "## PACKAGE" and a list of
            the names that the package exports.
    """
    # `re.split` returns the text before the first heading, then package, section, package, ...
    parts = re.split(r"^## (\S+)$", text, flags=re.MULTILINE)
    packages = parts[1::2]
    sections = parts[2::2]
    pages = {}
    first_paths: dict[int, str] = {}  # Where an object's docstring is, by the object's id.
    # A line of the list, such as "- `minimize`: finds the minimum".
    name_in_list = re.compile(r"^- `(\w+)`:", re.MULTILINE)
    for package, section in zip(packages, sections, strict=True):
        module = importlib.import_module(package)
        docstrings = ""
        for name in name_in_list.findall(section):
            path = f"{package}.{name}"
            # It is `path` if no earlier package exports the object.
            first_path = first_paths.setdefault(id(getattr(module, name)), path)
            section = section.replace(f"- `{name}`:", f"- [`{name}`][{first_path}]:")
            if first_path == path:
                docstrings += f"::: {path}\n\n"
        pages[f"api/{package}.md"] = f"# {package}{section.rstrip()}\n\n{docstrings}"
    return pages


def notebook_page(notebook: Path) -> str:
    """Return a notebook as Markdown: its texts, its programs and their outputs."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += map(_output_text, cell.get("outputs", ()))
    return "\n\n".join(parts)


def _output_text(output: dict[str, Any]) -> str:
    """Return an output of a notebook's cell: as a picture, else as HTML, else as text."""
    # Printed text has no "data". A text is a list of lines.
    lines_by_kind = output.get("data", {"text/plain": output.get("text")})
    data = {kind: "".join(lines) for kind, lines in lines_by_kind.items()}
    if "image/png" in data:
        return f'<img alt="picture" src="data:image/png;base64,{data["image/png"].strip()}">'
    return data.get("text/html") or f"```text\n{data['text/plain'].rstrip()}\n```"


def _file(path: str, config: Any) -> Any:
    """Return the file of the site for a page, a folder or another file of the repository."""
    if path.endswith(".md") or (ROOT / path).is_dir():
        return File.generated(config, site_path(path), content=_text(path))
    return File.generated(config, site_path(path), abs_src_path=str(ROOT / path))


def _text(path: str) -> str:
    """Return the text of a page of the repository, or a list of the files of a folder."""
    if not (ROOT / path).is_dir():
        return (ROOT / path).read_text(encoding="utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "--", path], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    lines = []
    for file in listed:
        link = posixpath.relpath(file, posixpath.dirname(path))
        lines.append(f"- [{file.removeprefix(path + '/')}]({link})")
    return "\n".join([f"# {path}", "", *lines])


def _target(link: str, path: str) -> str:
    """Return the target of a link in a page, as a path in the repository.

    Args:
        link: The link, relative to the page.
        path: The path of the page in the repository.

    Raises:
        ValueError: If the target does not exist.
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if not (ROOT / target).exists():
        raise ValueError(f"expected a file or folder that {path} links to, found no {target}")
    return target


def _external(link: str) -> bool:
    return "://" in link or link.startswith("mailto:")
