"""The site: pages of docs/, a reference made of docstrings, a gallery that is run.

`make docs` builds it. `pages.py` lays out what Sphinx reads, in site/source: nothing of it is kept
twice in the repository, and pages there stay Markdown that can be read without a build.
"""
