"""A library that is loaded later is not loaded by the file that names it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import later


def test_a_library_is_loaded_by_the_first_part_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up_library.py").write_text("part = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = later.library("made_up_library", reason="not there")
    assert not hasattr(module, "__wrapped__"), "as pytest asks of everything"
    assert "made_up_library" not in sys.modules
    assert module.part == 3
    monkeypatch.delitem(sys.modules, "made_up_library")
    with pytest.raises(AttributeError):
        module.part = 4


def test_a_file_whose_library_is_missing_is_skipped_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="nobody has it"):
        later.library("no_such_library", reason="nobody has it")
