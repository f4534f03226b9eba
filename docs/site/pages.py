"""Lay out what Sphinx reads: every page of the repository, its links made those of the site.

Three things are made here and not written by hand, so that they cannot fall behind:

a page a library   each part of doors.md and migration.md becomes a page, these their index
the reference      a page a module of docs/names.md, each name by its docstring
links              to a page of the site where it has one, to the repository where it has not
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/tilewright/tilewright"
# Pages that lie at the top of the repository, and where they stand in the site.
OUTER = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# Pages of which each part is a page of the site, in a folder of the name.
IN_PARTS = ("doors", "migration")
INDEX = ROOT / "docs" / "site" / "index.md"
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
ROW = re.compile(r"^\| `(?P<name>tilewright\.[\w.]+)`", re.M)


def lay_out(target: Path) -> None:
    """Everything into a folder, anew; what the gallery keeps of earlier builds stays."""
    for page in target.glob("*.md"):
        page.unlink()
    for folder in (*IN_PARTS, "reference"):
        shutil.rmtree(target / folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", target / "images", dirs_exist_ok=True)
    for name, text in pages().items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def pages() -> dict[str, str]:
    """Every page by its path in the site, as Sphinx is to read it."""
    written = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
    made = {"index.md": INDEX.read_text()}
    made |= {name: relinked(text, f"docs/{name}", name) for name, text in written.items()}
    for path, name in OUTER.items():
        made[name] = relinked((ROOT / path).read_text(), path, name)
    for whole in IN_PARTS:
        source = f"docs/{whole}.md"
        above, parts = split(written[f"{whole}.md"])
        below = listed([f"{whole}/{name}" for name in parts])
        made[f"{whole}.md"] = relinked(above, source, f"{whole}.md") + below
        for name, text in parts.items():
            made[f"{whole}/{name}.md"] = relinked(text, source, f"{whole}/{name}.md")
    named = modules(written["names.md"])
    made["names.md"] = ROW.sub(r"| {py:obj}`\g<name>`", made["names.md"]) + listed(
        [f"reference/{module}" for module in named]
    )
    for module, names in named.items():
        made[f"reference/{module}.md"] = reference(module, names)
    made["index.md"] += more(made)
    return made


def named_by(text: str) -> set[str]:
    """The pages that a page's lists have below it."""
    lists = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.M | re.S)
    lines = [line for found in lists for line in found.splitlines()]
    return {f"{line}.md" for line in lines if line and not line.startswith(":")}


def more(made: dict[str, str]) -> str:
    """A list of the pages that no list has yet, so that a new one is found; mostly nothing."""
    below = set[str]().union(*map(named_by, made.values()))
    left = sorted(path.removesuffix(".md") for path in {*made} - below - {"index.md"})
    return listed(left, caption="More") if left else ""


def relinked(text: str, source: str, page: str) -> str:
    """A page's links, which are those of the repository, as they are in the site."""

    def link(found: re.Match[str]) -> str:
        path, anchor = found["path"], found["anchor"] or ""
        whole = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if anchor and whole in {f"docs/{name}.md" for name in IN_PARTS}:
            return os.path.relpath(part_at(whole, anchor), os.path.dirname(page) or ".")
        if whole in OUTER or (whole.startswith("docs/") and not whole.endswith(".py")):
            inner = OUTER.get(whole, whole.removeprefix("docs/"))
            return os.path.relpath(inner, os.path.dirname(page) or ".") + anchor
        kind = "tree" if (ROOT / whole).is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{whole}{anchor}"

    return outside_fences(text, lambda part: LINK.sub(link, part))


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """The text with all but its blocks of code changed."""
    done, end = [], 0
    for fence in FENCE.finditer(text):
        done += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*done, change(text[end:])])


def split(text: str) -> tuple[str, dict[str, str]]:
    """What stands above the first part, and every part as a page of its own, by its name."""
    parts = re.split(r"^## ", text, flags=re.M)
    made = {}
    for part in parts[1:]:
        head, _, body = part.partition("\n")
        made[slug(head)] = f"# {head}\n" + re.sub(r"^#(#+ )", r"\1", body, flags=re.M)
    return parts[0], made


def slug(head: str) -> str:
    """A heading as the last part of an address: `MAGMA: batches` is magma-batches."""
    return re.sub(r"[^a-z0-9]+", "-", head.lower()).strip("-")


def part_at(path: str, anchor: str) -> str:
    """The page of the site that is the part of a page with this anchor in the repository."""
    _, parts = split((ROOT / path).read_text())
    for name, text in parts.items():
        if anchor_of(text.partition("\n")[0].removeprefix("# ")) == anchor.removeprefix("#"):
            return f"{Path(path).stem}/{name}.md"
    raise LookupError(f"{path} has no part {anchor!r}")


def anchor_of(head: str) -> str:
    """A heading as the anchor that GitHub gives it."""
    return re.sub(r"[^\w\s-]", "", head.lower()).replace(" ", "-")


def listed(paths: list[str], caption: str = "") -> str:
    """A list of pages below this one; with a caption in the navigation alone."""
    options = f":caption: {caption}\n:hidden:\n" if caption else ":maxdepth: 1\n"
    return f"\n\n```{{toctree}}\n{options}\n" + "\n".join(paths) + "\n```\n"


def modules(names: str) -> dict[str, list[str]]:
    """The names of every module, in the order of docs/names.md."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", names, flags=re.M)[1:]:
        found[part.partition("\n")[0].strip()] = ROW.findall(part)
    return found


def reference(module: str, names: list[str]) -> str:
    """A module's page: what it is for, then its names by their docstrings."""
    head = f"# {module}\n\n"
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("tilewright"):
            raise
        return f"{head}This build of the site had no {error.name}, which `{module}` needs.\n"
    things = [(name, getattr(imported, name.removeprefix(f"{module}."))) for name in names]
    parts = [f".. automodule:: {module}", *(directive(*one) for one in things)]
    return head + "```{eval-rst}\n" + "\n\n".join(parts) + "\n```\n"


def directive(name: str, thing: object) -> str:
    """What makes autodoc write a name's entry."""
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return f".. autoexception:: {name}\n   :show-inheritance:"
    if isinstance(thing, type):
        return f".. autoclass:: {name}\n   :members:"
    return f".. {'autofunction' if callable(thing) else 'autodata'}:: {name}"
