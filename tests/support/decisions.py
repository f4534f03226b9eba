"""What planning decides, line by line, for made-up devices and seeded batches.

    python -m tests.support.decisions        writes tests/planning/decisions/ anew

A line is one decision. `tests/planning/test_decisions.py` compares them with the files in the
repository: whoever changes a decision sees which, and says in the commit why it is better.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import made_up
from tilewright.backends import backends
from tilewright.engines.dense import plan
from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Plan
from tilewright.facts.problem import Problem
from tilewright.planning.buckets import Tile
from tilewright.planning.classes import Boundaries, Tuned, classify
from tilewright.planning.cost import Curve, Measured, Narrow
from tilewright.planning.grouped import lay_out
from tilewright.planning.host_part import is_for_a_loop, large
from tilewright.planning.makespan import Runs, Slots, predict
from tilewright.planning.quick import Bounds
from tilewright.tuning.curves import from_json, to_json
from tilewright.tuning.search import Space, search
from tilewright.tuning.tasks import representatives
from tilewright.tuning.visits import HOST, Point, Visits

FOLDER = Path(__file__).parents[1] / "planning" / "decisions"
OPENCL = backends()["opencl"]


def number(value: float | None) -> str:
    """Six digits: logarithms differ in the last of sixteen between processors."""
    return "-" if value is None else f"{value:.6g}"


def column(values: Any) -> str:
    """Short ones in full, long ones as a digest."""
    listed = np.asarray(values).tolist()
    if len(listed) <= 8:
        return ",".join(map(str, listed))
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:10]


# Batches.

TILES = (
    Tile(64, 64, 8e9, 2e-6),
    Tile(32, 32, 5e9, 1e-6, step=8),
    Tile(16, 16, 2e9, 5e-7, step=4, trim=(4, 8)),
)
SLOTS = {
    "cores": Slots(2, jump=2e-7),
    "phone": Slots(3, 4, launch=3e-5, merge=1e-9),
    "card": Slots(132, 2, merge=2e-10),
    "launches": Slots(40, 2, launch=8e-6, merge=1e-9),
}


def batches() -> dict[str, tuple[Any, Any, Any]]:
    """Columns of m, n and k."""
    draw = np.random.default_rng(23)
    zipf = np.minimum(draw.zipf(1.5, 400) * 4, 5000)
    deep = draw.integers(1, 90, 60)
    deep[[3, 30]] = 20_000
    half = draw.integers(8, 200, (3, 96))
    half[:, ::5] = 0
    return {
        "uniform": tuple(draw.integers(1, 300, (3, 50))),
        "tiny": tuple(draw.integers(1, 24, (3, 700))),
        "equal": tuple(np.full((3, 40), 96)),
        "sorted": (np.full(30, 64), np.full(30, 64), np.arange(300, 0, -10)),
        "rising": (np.full(30, 64), np.full(30, 64), np.arange(10, 310, 10)),
        "zipf": (zipf, np.full(400, 64), draw.permutation(zipf)),
        "deep": (draw.integers(1, 130, 60), draw.integers(1, 130, 60), deep),
        "holes": tuple(half),
        "one": ([2000], [1500], [9000]),
        "wide": ([16, 4000, 40], [4000, 16, 70], [300, 300, 70_000]),
        "no depth": ([64, 30], [64, 30], [0, 0]),
        "many": tuple(draw.integers(1, 200, (3, 6000))),
    }


def layouts() -> Iterator[str]:
    """Order, shapes, cuts and predictions of every batch on every scheduler."""
    for name, sizes in batches().items():
        for place, slots in SLOTS.items():
            for order in ("auto", "bucketed") if name in ("uniform", "deep") else ("auto",):
                made = lay_out(*sizes, TILES, slots, order)
                seconds = " ".join(number(1e6 * one) for one in made.predicted.values())
                queue, sums = made.queue, made.sums
                yield f"{name} on {place}, {order}: {made.reason}"
                yield (
                    f"    {seconds} µs; order {column(made.order)} tile {column(made.tile)}"
                    f" parts {column(made.parts)} buckets {len(made.buckets)} bytes {made.bytes}"
                )
                lists = (
                    queue.problem,
                    queue.row,
                    queue.col,
                    queue.part,
                    queue.k_begin,
                    queue.k_end,
                )
                yield f"    {len(queue)} tiles {' '.join(map(column, lists))} {queue.k_end.dtype}"
                yield f"    sums {column(sums.problem)} {column(sums.offset)} {sums.elements}"
                if len(queue) < 3000:
                    balance = made.balance()
                    ends = (number(1e6 * part.max()) for part in (balance.before, balance.after))
                    yield f"    busiest {' '.join(ends)} µs of {number(1e6 * made.simulated())}"


def makespans() -> Iterator[str]:
    """Of queues too long to simulate, where estimates, levels and bounds decide."""
    for seed in range(24):
        draw = np.random.default_rng(seed)
        slots = Slots((2, 6, 64, 128, 132, 300)[seed % 6], (1, 2)[seed % 2])
        count = (5000, 7000, 20_000)[seed % 3]
        if seed % 4 == 0:
            seconds = draw.uniform(1, 2, count)
        elif seed % 4 == 1:
            seconds = np.sort(draw.zipf(1.6, count).clip(max=3000).astype(float))[::-1]
        elif seed % 4 == 2:
            seconds = draw.zipf(1.4, count).clip(max=9000).astype(float)
        else:
            seconds = np.repeat(draw.uniform(0.1, 9, count // 50), 50)
        counts = draw.choice([0, 1, 1, 1, 2, 130, 500], len(seconds))
        yield f"queue {seed} on {slots.count}: {number(predict(Runs(counts, seconds), slots))}"


# Single products.


def curve(least: float, rate: float, sides: tuple[int, ...] = (32, 128, 512, 2048)) -> Curve:
    """A kernel that starts after `least` seconds and then makes `rate` flops a second."""
    return Curve(tuple((2.0 * side**3, least + 2.0 * side**3 / rate) for side in sides))


def measured(device: Device) -> Measured:
    """Made-up curves of every kernel that a device has: each the best somewhere."""
    kernels = OPENCL.kernels(device)
    curves = {
        kernel.name: curve(1e-5 * (index + 1), 4e10 * (index + 1))
        for index, kernel in enumerate(kernels)
        if index != 2  # one that the probe left out
    }
    sides = {
        name: Narrow(m=((1.0, 1.5 + index), (16.0, 1.2)), n=((1.0, 3.0), (64.0, 1.1)))
        for index, name in enumerate(curves)
    }
    narrow = (("host", Narrow(m=((1.0, 4.0),), k=((1.0, 2.0),))), *sides.items())
    transfer = None if device.has("unified_memory") else 6e9
    return Measured(curve(1e-6, 9e10), tuple(curves.items()), 2e10, transfer, narrow)


def problems() -> Iterator[Problem]:
    """Sides, layouts, types and epilogues."""
    draw = random.Random(5)
    for index in range(8):
        m, n, k = (draw.choice((1, 3, 17, 64, 200, 900, 2048)) for _ in range(3))
        a = (k, 1) if index % 3 else (1, m)
        b = (n, 1) if index % 4 else (1, k)
        dtype, sums = (("float32", "float32"), ("float16", "float32"), ("float64", "float64"))[
            (0, 0, 1, 0, 2)[index % 5]
        ]
        yield Problem(
            m,
            n,
            k,
            *a,
            *b,
            n,
            1,
            dtype,
            sums,
            bias=index % 2 == 1,
            activation=("none", "relu", "gelu")[index % 3],
            aligned=index % 4 != 3,
        )


def told(made: Plan) -> Iterator[str]:
    """A plan in four lines."""
    step = made.step
    config = {name: value for name, value in asdict(step.config).items() if value}
    yield f"    {made.kernel} {number(made.seconds)} s: {made.reason}; {made.origin}"
    yield f"    {config} {made.shape_class}"
    grids = [f"{one.program} {one.global_size} {one.local_size}" for one in step.launches]
    yield f"    {grids} scratch {[item.bytes for item in step.scratch]} {step.computed_flops} flops"
    rejected = [f"{one.kernel} {one.reason} {number(one.seconds)}" for one in made.rejected]
    yield f"    not {'; '.join(sorted(rejected))}"


def plans() -> Iterator[str]:
    """By rules alone, by made-up curves, and with a tuned configuration, on every device."""
    for device in made_up.DEVICES:
        kernels, priors, known = OPENCL.kernels(device), OPENCL.priors(device), measured(device)
        for problem in problems():
            head = f"{device.name}: {problem.m} x {problem.n} x {problem.k} {problem.dtype}"
            if problem.dtype not in device.dtypes:
                continue
            for how, options in (
                ("by rules", {}),
                ("by curves", {"measured": known}),
                ("on the device", {"measured": known, "host_operands": False}),
                ("tuned", {"measured": known, "host_operands": False, "tuned": TUNED}),
            ):
                made = plan(problem, device, kernels, priors=priors, **options)  # type: ignore[arg-type]
                yield f"{head} {how}"
                yield from told(made)


TUNED = {
    "local": Tuned("local", Config(4, 4, 64, 64, 16), 0.5, "large", "tuned for large"),
    "panel": Tuned("panel", Config(), 0.7, "large", "tuned for large"),
}


# Thresholds: the first side at which a decision is another.


def first(least: int, most: int, holds: Callable[[int], bool]) -> str:
    """The least number for which it holds, from `least` to `most`, where it holds from there on."""
    if not holds(most):
        return "never"
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle + 1, most)
    return str(least)


SHAPES: tuple[Callable[[int], tuple[int, int, int]], ...] = (
    lambda n: (n, n, n),
    lambda n: (1, n, n),
    lambda n: (n, 16, n),
    lambda n: (n, n, 3),
    lambda n: (n, 500, 500),
)


def leaves(bounds: Bounds, shape: Callable[[int], tuple[int, int, int]]) -> str:
    return first(1, 4000, lambda n: not bounds.is_host(*shape(n)))


def kernel_from(flops: float, launch: float, plain: bool) -> str:
    return first(1, 4000, lambda n: not is_for_a_loop(n, flops, launch, plain=plain))


def thresholds() -> Iterator[str]:
    """From which side on a product may leave the host, a batch a loop, and a class ends."""
    for device in made_up.DEVICES:
        for ratios in ({}, {"local": 0.5, "naive": 0.2}):
            known = measured(device)
            bounds = Bounds.of(known, 4, ratios)
            sides = [leaves(bounds, shape) for shape in SHAPES]
            yield f"{device.name} {ratios or 'untuned'}: may leave the host from {sides}"
        won = [side for size in (2, 4, 8) for side, is_won in known.wins(size) if is_won]
        yield f"    squares won {won}; a launch takes {number(known.launch)} s"
    for flops, plain in ((0.0, True), (1e6, True), (1e6, False), (3e7, True)):
        loop = [kernel_from(flops, launch, plain) for launch in (1e-5, 6e-5, 2.4e-4, 1e-3)]
        yield f"{flops:g} flops, plain {plain}: a kernel from {loop} products on"
    grid = np.arange(1, 4000)
    for other in (255, 256, 2000):
        for columns in ((grid, grid, other), (other, grid, grid), (grid, other, grid)):
            taken = large(*(np.broadcast_to(one, grid.shape) for one in columns))
            yield f"large beside {other}: from {int(grid[taken].min(initial=9999))}"
    for bounds_of in (Boundaries(), Boundaries(4, 32, 512, True)):
        for shape in ("n {0} {0}", "{0} n {0}", "{0} {0} n", "n n n", "n n {0}"):
            names: list[str] = []
            for n in range(1, 700):
                m, columns_, k = (
                    int(part) for part in shape.format(128).replace("n", str(n)).split()
                )
                name = classify(Problem(m, columns_, k, k, 1, columns_, 1, columns_, 1), bounds_of)
                if not names or names[-1].partition(" from ")[0] != name:
                    names.append(f"{name} from {n}")
            yield f"{bounds_of.small}: {shape}: {', '.join(names)}"
        for dtype, layout in (("float32", "rows-rows"), ("float16", "rows-columns")):
            for one in representatives(bounds_of, dtype, layout):
                shape_class = classify(one.problem(), bounds_of)
                yield f"    {one.m} x {one.n} x {one.k} {one.accumulate} {one.layout} {shape_class}"


# Curves: what is visited, in which order, and what follows.


def world(seed: int) -> Callable[[Point], float]:
    """Seconds of a visit, with load that comes and goes."""
    draw = random.Random(seed)
    host, best, slow = (10 ** draw.uniform(*range_) for range_ in ((9, 12), (9, 12.5), (8, 11)))
    launch = 10 ** draw.uniform(-5, -3)

    def seconds(point: Point) -> float:
        name, (m, n, k) = point
        flops = 2.0 * m * n * k * (1 + 8 / min(m, n, k))
        rate, least = {HOST: (host, 1e-6), "best": (best, launch), "slow": (slow, 2 * launch)}[name]
        return (least + flops / rate) * (1 + max(0.0, draw.gauss(0, 0.1 * (seed % 3))))

    return seconds


def campaigns() -> Iterator[str]:
    """Visits until nothing is due, as digests and counts, and the curves in full."""
    computed = lambda name, sides: 2.0 * np.prod([-(-side // 16) * 16 for side in sides])  # noqa: E731
    for seed in range(9):
        visits, seconds, order = Visits(), world(seed), []
        while due := visits.due(("best", "slow"), computed):
            point = due[0]
            order.append((point, number(visits.predicted(point, computed))))
            visits.add(point, seconds(point))
            if seed == 8 and len(order) == 40:
                visits.fail("slow")
        counts = {name: sum(one[0] == name for one, _ in order) for name in (HOST, "best", "slow")}
        listed = [f"{name} {sides} {predicted}" for (name, sides), predicted in order]
        yield f"world {seed}: visited {counts}, {column(listed)}"
        yield f"    first {'; '.join(listed[:16])}"
        yield f"    last {'; '.join(listed[-8:])}"
        yield f"    doubted {visits.doubted(('best', 'slow'))}"
        found = visits.measured(("best", "slow"), computed, 1e10, lambda curves: 5e9)
        for name, one in (("host", found.host), *found.curves):
            points = ", ".join(f"{number(flops)} {number(least)}" for flops, least in one.points)
            yield f"    {name}: {points}"
        for name, sides in found.narrow:
            for side in "mnk":
                values = getattr(sides, side)
                yield f"    {name} {side}: {', '.join(f'{w:g} {number(f)}' for w, f in values)}"
        yield f"    {found.boundaries}"
        assert from_json(to_json(found)) == found


def searches() -> Iterator[str]:
    """Which configurations are asked for, in which order, and what is found."""
    for device in (made_up.TWO_CORES, made_up.H200, made_up.MALI_G77):
        for kernel in OPENCL.kernels(device):
            space = Space.of(kernel, Problem(512, 512, 512, 512, 1, 512, 1, 512, 1), device)
            if space is None:
                yield f"{device.name} {kernel.name}: none"
                continue
            asked: list[str] = []

            def ask(config: Config, asked: list[str] = asked) -> float | str:
                text = repr(config)
                asked.append(text)
                value = int(hashlib.sha256(text.encode()).hexdigest()[:6], 16) / 2**24
                return "refused" if value < 0.1 else value

            found = search(space, ask, lambda asked=asked: max(0.0, 1 - len(asked) / 40))  # type: ignore[misc]
            best = None if found is None else (asked.index(repr(found[0])), number(found[1]))
            known = len(space.neighbours(space.default)), len(space.telling()), space.size
            yield f"{device.name} {kernel.name}: {known} {len(asked)} asked {column(asked)} {best}"


TOPICS: dict[str, Callable[[], Iterator[str]]] = {
    "layouts": layouts,
    "makespans": makespans,
    "plans": plans,
    "thresholds": thresholds,
    "campaigns": campaigns,
    "searches": searches,
}


def main() -> None:
    """Write every topic's file."""
    FOLDER.mkdir(exist_ok=True)
    for topic, lines in TOPICS.items():
        (FOLDER / f"{topic}.txt").write_text("\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
