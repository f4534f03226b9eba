"""What Sphinx is told. Everything it reads was laid out in site/source by pages.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("MPLBACKEND", "Agg")

from docs.site import docstrings  # noqa: E402
from tilewright.version import __version__  # noqa: E402

project = "Tilewright"
author = "the Tilewright authors"
copyright = "the Tilewright authors, MIT licence"
version = release = __version__
html_title = f"Tilewright {release}"
html_theme = "furo"
html_static_path = ["static"]
html_theme_options = {"source_repository": "https://github.com/tilewright/tilewright/"}
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "gallery/*.zip"]
# A type in a signature (`Network`) may be that of two modules; the first is linked.
suppress_warnings = ["config.cache", "ref.python"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
smartquotes = False  # messages and commands stand as they are typed
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "reset_modules": (),
    "min_reported_time": 0,
}

linkcheck_anchors = True
linkcheck_timeout = 20
linkcheck_retries = 2
# Places that answer a person and not a program.
linkcheck_ignore = [r"https://github\.com/tilewright/.*"]


def wrap(app: Any, page: str, template: str, context: Any, tree: Any) -> None:
    """Messages are long lines; text elsewhere has columns, which would not stand wrapped."""
    if page == "troubleshooting":
        app.add_css_file("messages.css")


def setup(app: Any) -> None:
    """Docstrings are plain text; messages are wrapped."""
    app.connect("html-page-context", wrap)
    app.connect("autodoc-process-docstring", docstrings.convert)
    app.connect("autodoc-process-signature", docstrings.sign)
