"""Build the site: python -m docs.site.build [--links] [--no-gallery]

The HTML lies in site/html. A warning is an error: a link or an anchor that leads nowhere, an
example that fails, a docstring that cannot be read. `--links` asks for every address outside
instead, with a network; `--no-gallery` runs no example.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.site import pages

SITE = pages.ROOT / "site"


def build(site: Path, builder: str = "html", gallery: bool = True) -> int:
    """0 where the site could be built without a warning."""
    from sphinx.cmd.build import build_main

    source = site / "source"
    source.mkdir(parents=True, exist_ok=True)
    pages.lay_out(source)
    options = ["-b", builder, "-c", str(pages.ROOT / "docs" / "site"), "-d", str(site / "doctrees")]
    options += ["-W", "--keep-going", "-q"]
    if not gallery:
        options += ["-D", "plot_gallery=0"]
    return build_main([*options, str(source), str(site / builder)])


def main() -> int:
    """Read the arguments, and build."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--links", action="store_true", help="ask for addresses outside")
    parser.add_argument("--no-gallery", action="store_true", help="run no example")
    given = parser.parse_args()
    builder = "linkcheck" if given.links else "html"
    return build(SITE, builder, gallery=not (given.no_gallery or given.links))


if __name__ == "__main__":
    sys.exit(main())
