"""How engines are compared, whatever they multiply: who is asked, who wins, why not the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.made_up import H200
from tilewright.engines.choose import choose, merged, named
from tilewright.errors import DeviceError, KernelError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal, Rejected
from tilewright.planning.explain import lines_of


@dataclass
class Says:
    """An engine of few words, which counts how often it was asked."""

    name: str
    seconds: float | None = 1.0
    refuses: str | None = None
    fails: Exception | None = None
    margin: float = 1.0
    asked: list[Any] = field(default_factory=list)

    def why_not(self, work: str, device: Device) -> str | None:
        self.asked.append(work)
        return self.refuses

    def propose(self, work: str, device: Device) -> Proposal:
        if self.fails is not None:
            raise self.fails
        return Proposal(self.name, device, self.seconds, "as told", 7 << 20, self.margin)


def order(*engines: Says, **options: Any) -> list[str]:
    return [one.engine for one in choose("work", H200, engines, **options).proposals]


def test_the_fewest_predicted_seconds_win_and_of_equals_the_one_asked_first() -> None:
    assert order(Says("a", 3.0), Says("b", 1.0), Says("c", 2.0)) == ["b", "c", "a"]
    assert order(Says("a", 1.0), Says("b", 1.0)) == ["a", "b"]


def test_what_was_never_measured_comes_behind_what_was_in_the_order_asked() -> None:
    assert order(Says("a", None), Says("b", 5.0), Says("c", None)) == ["b", "a", "c"]
    assert order(Says("a", None), Says("b", None)) == ["a", "b"]


def test_a_margin_is_how_much_faster_an_engine_must_be_to_be_preferred() -> None:
    home = Says("home", 1.03)
    assert order(Says("away", 1.0, margin=1.03), home) == ["away", "home"]
    assert order(Says("away", 1.01, margin=1.03), home) == ["home", "away"]
    (rejected,) = choose("work", H200, [Says("away", 1.01, margin=1.03), home]).rejected
    assert rejected == Rejected("away", "faster than home by less than 3%", 1.01)


def test_none_is_asked_after_one_that_is_fast_enough() -> None:
    slow, quick, last = Says("slow", 2.0), Says("quick", 0.5), Says("last", 0.1)
    assert order(slow, quick, last, enough=0.5) == ["quick", "slow"]
    assert (len(slow.asked), len(quick.asked), len(last.asked)) == (1, 1, 0)


def test_who_cannot_says_why_before_planning_or_while_planning() -> None:
    broken = Says("broken", fails=DeviceError("its compiler fails"))
    verdict = choose("work", H200, [Says("unfit", refuses="is unfit"), broken, Says("able")])
    assert verdict.best.engine == "able"
    assert verdict.refusals == (
        Rejected("unfit", "is unfit"),
        Rejected("broken", "its compiler fails"),
    )
    assert verdict.reasons == "unfit: is unfit; broken: its compiler fails"


def test_an_error_that_is_no_word_of_ours_is_nobodys_refusal() -> None:
    with pytest.raises(ZeroDivisionError):
        choose("work", H200, [Says("broken", fails=ZeroDivisionError()), Says("able")])


def test_only_the_one_wanted_is_asked_and_its_reason_is_raised() -> None:
    other, wanted = Says("other", 0.1), Says("wanted", 5.0)
    assert order(other, wanted, wanted="wanted") == ["wanted"]
    assert not other.asked
    wanted.refuses = "is unfit"
    with pytest.raises(KernelError, match=r"^kernel='wanted': .*H200.*: is unfit$"):
        choose("work", H200, [other, wanted], "wanted")
    with pytest.raises(KernelError, match=r"^kernel='none': .* knows 'other', 'wanted'$"):
        choose("work", H200, [other, wanted], "none")
    none = "^kernel='none': '.*' has no kernels to force; accepted is kernel=None$"
    with pytest.raises(KernelError, match=none):
        named([], "none", H200)


def test_where_every_engine_refuses_the_verdict_has_reasons_and_no_proposal() -> None:
    verdict = choose("work", H200, [Says("a", refuses="is unfit")])
    assert not verdict.proposals
    assert verdict.reasons == "a: is unfit"
    assert choose("work", H200, []).reasons == "none there"


def test_verdicts_of_two_devices_are_one_and_the_first_wins_ties() -> None:
    here = choose("work", H200, [Says("a", 2.0), Says("b", refuses="is unfit")])
    there = choose("work", H200, [Says("c", 2.0), Says("d", 1.0)])
    both = merged(here, there)
    assert [one.engine for one in both.proposals] == ["d", "a", "c"]
    assert both.refusals == here.refusals


def test_a_verdict_is_told_in_the_same_lines_whatever_multiplies() -> None:
    engines = [Says("a", 2e-3), Says("b", 5e-5), Says("c", None), Says("d", refuses="is unfit")]
    lines = lines_of(choose("work", H200, engines), 1e9, details=["class      small"])
    assert lines == [
        "engine     b",
        "because    as told",
        "predicted  50.0 µs, 20.0 TFLOP/s",
        "scratch    7.0 MiB",
        "class      small",
        "rejected   a: slower  (2.000 ms)",
        "rejected   c: the probe left it out",
        "rejected   d: is unfit",
    ]
    (line,) = lines_of(choose("work", H200, [Says("c", None)]), 1e9)[2:3]
    assert line == "predicted  unknown: no measurement was asked, or none covers it"
