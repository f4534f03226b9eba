"""The site: every page has its place, every name its entry, messages are those of the code."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from docs.site import pages
from tests.test_pages import _public
from tilewright import errors, onebit

ROOT = Path(__file__).parent.parent
GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))
TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    return pages.pages()


def test_every_page_is_in_the_navigation_once_and_all_that_it_names_are_there(
    site: dict[str, str],
) -> None:
    named = [path for text in site.values() for path in sorted(pages.named_by(text))]
    assert sorted(named) == sorted({*named})
    assert {*named} == {*site, "gallery/index.md"} - {"index.md"}


def test_every_public_name_has_an_entry_in_the_reference(site: dict[str, str]) -> None:
    for name, _ in _public():
        module = name.rpartition(".")[0]
        assert re.search(
            rf"^\.\. auto\w+:: {re.escape(name)}$", site[f"reference/{module}.md"], re.M
        )


def test_a_page_that_no_list_names_yet_is_found_under_more() -> None:
    found = pages.more({"index.md": "```{toctree}\na\n```\n", "a.md": "", "b.md": ""})
    assert pages.named_by(found) == {"b.md"}
    assert pages.more({"index.md": "```{toctree}\na\n```\n", "a.md": ""}) == ""


@pytest.mark.parametrize("whole", pages.IN_PARTS)
def test_every_door_has_a_page_and_its_parts_are_told_apart(
    whole: str, site: dict[str, str]
) -> None:
    heads = re.findall(
        r"^## (.+)$", (ROOT / "docs" / f"{whole}.md").read_text(encoding="utf-8"), re.M
    )
    found = [text.partition("\n")[0] for path, text in site.items() if path.startswith(f"{whole}/")]
    assert sorted(found) == sorted(f"# {head}" for head in heads)


def test_links_lead_to_pages_of_the_site_or_to_the_repository(site: dict[str, str]) -> None:
    for page, text in site.items():
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", pages.FENCE.sub("", text)):
            inner = (Path("/") / page).parent / target
            known = inner.resolve().relative_to("/").as_posix()
            there = known in site or (ROOT / "docs" / known).is_file()
            assert there or target.startswith(("https:", "http:")), (page, target)


def test_anchors_are_headings_of_the_page_that_has_them_in_the_site(site: dict[str, str]) -> None:
    heads = {
        page: {pages.anchor_of(head) for head in re.findall(r"^#+ (.+)$", text, re.M)}
        for page, text in ((page, pages.FENCE.sub("", text)) for page, text in site.items())
    }
    for page, text in site.items():
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", pages.FENCE.sub("", text)):
            inner = (Path("/") / page).parent / target if target else Path("/") / page
            known = inner.resolve().relative_to("/").as_posix()
            assert known not in heads or anchor in heads[known], (page, target, anchor)


def test_blocks_of_code_are_left_as_they_are() -> None:
    text = (
        "[a](gpu.md)\n```text\n[a](../README.md)\n```\n[b](../README.md#x)\n[c](../CHANGELOG.md)\n"
    )
    made = pages.relinked(text, "docs/page.md", "page.md")
    assert "\n[a](../README.md)\n" in made
    assert f"[b]({pages.REPOSITORY}/blob/main/README.md#x)" in made
    assert "[c](changelog.md)" in made
    with pytest.raises(LookupError, match="nothing"):
        pages.relinked("[a](doors.md#nothing)", "docs/page.md", "page.md")


def test_docstrings_become_markup_without_losing_a_word() -> None:
    pytest.importorskip("sphinx.ext.napoleon", reason="Sphinx is not installed")
    from docs.site import docstrings

    text = ["Rows | of `x[i]` * two_ things.", "", "name    what it is", "        and more"]
    made = docstrings.converted([*text, "Returns: [m, n]", "of x."])
    assert made[0] == r"Rows \| of ``x[i]`` \* two\_ things."
    assert "* ``name``: what it is" in made
    assert made[made.index("Returns:") + 1 :] == ["    [m, n]", "    of x."]


A, B = np.ones((3, 4)), np.ones((4, 6))
# What a user did, for messages that the page on troubles quotes.
MISTAKES: dict[str, Callable[[], Any]] = {
    "inner sizes": lambda: tw.matmul(A, np.ones((5, 6))),
    "of a batch": lambda: tw.grouped_matmul([A, A], [B, np.ones((5, 6))]),
    "unlike lists": lambda: tw.grouped_matmul([A, A], [B]),
    "two dtypes": lambda: tw.matmul(A, B.astype("f")),
    "integers": lambda: tw.matmul(A.astype(np.int64), B.astype(np.int64)),
    "a list": lambda: tw.matmul([[1.0]], B),
    "in place": lambda: tw.matmul(x := np.ones((4, 4)), x, out=x),
    "no device": lambda: tw.matmul(A, B, device="cuda:99"),
    "no sign": lambda: onebit.pack(np.array([[0.0, 1.0]])),
    "a coloured picture": lambda: tw.models.load("superres-s").bind((1, 3, 9, 9), device="host"),
    "no network of bits": lambda: onebit.load("nothing.npz"),
}


def told_of(mistake: Callable[[], Any]) -> str:
    with pytest.raises(errors.TilewrightError) as caught:
        mistake()
    return f"{type(caught.value).__name__}: {caught.value}".replace("cuda:99", "cuda:0")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages_on_the_page_of_troubles_are_those_that_are_raised(mistake: str) -> None:
    said = told_of(MISTAKES[mistake])
    assert any(fits(quoted, said) for quoted in quotes()), said


LEARNING: dict[str, Callable[[Any], Any]] = {
    "out and a gradient": lambda torch: tw.matmul(
        torch.ones(3, 4, requires_grad=True), torch.ones(4, 5), out=torch.empty(3, 5)
    ),
    "beside NumPy's": lambda torch: tw.matmul(
        torch.ones(3, 4, requires_grad=True), np.ones((4, 5))
    ),
    "counts, not ends": lambda torch: tw.ragged_matmul(
        torch.ones(10, 4), torch.ones(3, 4, 5), torch.tensor([3, 2, 10])
    ),
    "no such expert": lambda torch: tw.moe(
        torch.ones(2, 4),
        torch.ones(3, 4, 10),
        torch.ones(3, 5, 4),
        torch.tensor([[0], [7]]),
        torch.ones(2, 1),
    ),
}


@pytest.mark.parametrize("mistake", LEARNING)
def test_messages_of_tensors_are_those_that_are_raised(mistake: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    said = told_of(lambda: LEARNING[mistake](torch))
    assert any(fits(quoted, said) for quoted in quotes()), said


def test_what_no_call_here_can_raise_is_quoted_in_words_of_the_code() -> None:
    """Messages of drivers and caches: each run of words between what differs stands in a file."""
    folder = ROOT / "tilewright"
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (*folder.rglob("*.py"), *folder.rglob("*.toml"))
    )
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    raised = [told_of(mistake) for mistake in MISTAKES.values()]
    for quoted in (quoted for quoted in quotes() if "…" in quoted or "Error" not in quoted):
        if any(fits(quoted, said) for said in raised):
            continue
        told = re.sub(r"^\w+(Error|Warning): ", "", quoted)
        parts = [part.strip(" :;'(") for part in re.split("…|;|'[^']*'", told)]
        assert any(len(part) > 5 for part in parts), quoted
        assert [part for part in parts if len(part) > 5 and part not in joined] == [], quoted


def test_every_error_a_message_begins_with_is_one_of_ours() -> None:
    names = {
        quoted.partition(":")[0] for quoted in quotes() if re.match(r"\w+(Error|Warning):", quoted)
    }
    assert names <= {name for name in vars(errors) if name.endswith(("Error", "Warning"))}
    unmentioned = {"TilewrightError"} | names
    assert {"ShapeError", "DtypeError", "OperandError", "DeviceError", "CacheWarning"} < unmentioned


def quotes() -> list[str]:
    return [block.strip() for block in re.findall(r"```text\n(.*?)```", TROUBLE, re.S)] + [
        f"ShapeError: {inline}" for inline in re.findall(r"`(b: has[^`]*)`", TROUBLE)
    ]


def fits(quoted: str, said: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, quoted.split("…"))), said) is not None


def test_each_example_of_the_gallery_compares_draws_and_says_what_it_is() -> None:
    assert len(GALLERY) >= 6
    for path in GALLERY:
        text = path.read_text(encoding="utf-8")
        assert re.match(r'"""\n\S[^\n]*\n=+\n', text), path.name
        assert re.search(r"^\s*assert |assert_close", text, re.M), path.name
        assert "plt.show()" in text, path.name
        assert "perf_counter" in text, path.name


@pytest.mark.skipif(
    importlib.util.find_spec("furo") is None or importlib.util.find_spec("sphinx") is None,
    reason="the extra docs is not installed",
)
def test_the_configuration_of_the_site_can_be_read() -> None:
    spec = importlib.util.spec_from_file_location("site_conf", ROOT / "docs/site/conf.py")
    assert spec is not None
    assert spec.loader is not None
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    for extension in conf.extensions:
        assert importlib.util.find_spec(extension) is not None, extension


# The others compile kernels that other tests of the suite run; `make docs` runs all of them.
QUICK = [path for path in GALLERY if path.stem not in {"block_sparse", "enhance_film"}]


@pytest.mark.parametrize("path", QUICK, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_runs_and_draws(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in re.findall(
        r"^(?:import|from) (torch|av|scipy|matplotlib)\b", path.read_text(encoding="utf-8"), re.M
    ):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    drawn: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    runpy.run_path(str(path))
    plt.close("all")
    assert drawn


def test_what_the_first_page_shows_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", pages.INDEX.read_text(encoding="utf-8"), re.S)
    found: dict[str, Any] = {}
    exec(compile(block, "index.md", "exec"), found)
    assert len(found["results"]) == 1000


def test_anchors_of_links_are_headings_of_the_page_that_they_name() -> None:
    outer = [ROOT / path for path in ("README.md", *pages.OUTER)]
    for page in (*outer, *(ROOT / "docs").glob("*.md")):
        text = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
        for path, anchor in re.findall(r"\]\(([^):#\s]*)#([^)\s]+)\)", text):
            target = page.parent / path if path else page
            heads = re.findall(
                r"^#+ (.+)$", pages.FENCE.sub("", target.read_text(encoding="utf-8")), re.M
            )
            assert anchor in {pages.anchor_of(head) for head in heads}, (page.name, path, anchor)
