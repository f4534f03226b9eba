"""Decisions of planning and tuning on made-up devices are those that the repository holds.

A line that differs is a decision that changed. Where that was meant, `python -m
tests.support.decisions` writes the files anew, and the commit says why the new one is better.
"""

from __future__ import annotations

import difflib

import pytest

from tests.support import decisions


@pytest.mark.parametrize("topic", decisions.TOPICS)
def test_decisions_are_those_that_were_written_down(topic: str) -> None:
    written = (decisions.FOLDER / f"{topic}.txt").read_text(encoding="utf-8").splitlines()
    made = list(decisions.TOPICS[topic]())
    changed = list(
        difflib.unified_diff(written, made, "written down", "made now", n=1, lineterm="")
    )
    assert changed == []
