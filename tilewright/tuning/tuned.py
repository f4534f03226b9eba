"""Tuned configurations: how they are filed, and which one a problem gets.

A document holds a kernel on a device: it is named by what must be equal for its records to hold
(kernel source, configuration space, architecture) and by the driver. Its records are named by
dtype, accumulator, layout and shape class. Looked up in this order, always a whole configuration:

    this driver, this layout, this class     then the nearest classes, then other layouts
    another driver of the same architecture, in the same order
    None: the cost model and the kernel's default
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import settings
from tilewright.errors import CacheWarning
from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Kernel, Priors, Tunable
from tilewright.facts.problem import Problem
from tilewright.planning.classes import (
    Boundaries,
    Tuned,
    classify,
    layout_of,
    nearest,
    record_name,
    record_words,
)
from tilewright.remember import Shelf
from tilewright.tuning import store

_FIELDS = {field.name: field.default for field in fields(Config)}
# More than these no search tries: from a foreign file they would only stop a compiler.
_MOST = {"multiply_add": 2, "unroll": 64, "buffers": 8, "vector": 16}


Record = tuple[Config, float, str]
Records = dict[str, Record]
_read: Shelf[tuple[Path, str], Records] = Shelf("tuned records that were read", most=8 << 20)
_listed: Shelf[tuple[Path, str, str], tuple[str, ...]] = Shelf("tuned documents", most=1 << 20)
# How the origin of a tuned configuration begins.
ORIGIN = "tuned for"
# Configurations that no compiler here takes, by document.
_refused: Shelf[tuple[Path, str, Config], bool] = Shelf(
    "tuned records that do not build", most=1 << 18
)


def lookup(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel],
    priors: Priors,
    boundaries: Boundaries,
) -> dict[str, Tuned]:
    """The tuned configurations for a problem by kernel; a kernel without one is absent."""
    tuned = {}
    for kernel in kernels:
        found = _found(problem, device, kernel, priors, boundaries)
        if found is not None:
            config, ratio, gain = found.record
            own = found.document == document_name(kernel, problem, device, priors)
            where = _origin(found, classify(problem, boundaries), problem, own)
            origin = f"{where} ({gain})"
            tuned[kernel.name] = Tuned(kernel.name, config, ratio, found.shape_class, origin)
    return tuned


def least_ratios(
    problem: Problem, device: Device, kernels: Sequence[Kernel], priors: Priors
) -> dict[str, float]:
    """The least ratio of every tuned kernel over all its records, whatever they were tuned for."""
    home = settings.cache_folder()
    found: dict[str, float] = {}
    if home is None:
        return found
    for kernel in kernels:
        prefix = _prefix(kernel, problem, device, priors)
        for document in store.names(store.TUNED, prefix):
            ratios = (ratio for _, ratio, _ in _records(home, document).values())
            found[kernel.name] = min([found.get(kernel.name, 1.0), *ratios])
    return found


def document_name(kernel: Kernel, problem: Problem, device: Device, priors: Priors) -> str:
    """The document of a kernel on a device: KERNEL-WHAT-DRIVER."""
    return f"{_prefix(kernel, problem, device, priors)}{store.digest(device.driver)[:12]}"


def head(kernel: Kernel, device: Device, priors: Priors) -> dict[str, str]:
    """What a document says of itself, for readers."""
    return {
        "kernel": kernel.name,
        "architecture": architecture(device),
        "driver": device.driver,
        "source": priors.digest_of(kernel.name),
    }


def architecture(device: Device) -> str:
    """The device without its driver's version."""
    return "|".join((device.backend, device.platform, device.name))


def config_from_json(document: Mapping[str, Any]) -> Config:
    """The configuration, whole. Raises ValueError for anything that is none."""
    for name, value in dict(document).items():
        # What counts from 1 would be a division by 0 in a kernel's arithmetic.
        least, most = 1 if _FIELDS.get(name) == 1 else 0, _MOST.get(name, 2**14)
        if name not in _FIELDS or name == "rate" or type(value) is not int:
            raise ValueError(f"{name}={value!r} is no tunable")
        if not least <= value <= most:
            raise ValueError(f"{name}={value!r} is no tunable")
    return Config(**document)


def forget() -> None:
    """Read the store anew: another process, or this one, has tuned."""
    _read.clear()
    _listed.clear()


def refuse(
    problem: Problem,
    device: Device,
    kernel: Kernel,
    priors: Priors,
    boundaries: Boundaries,
    why: str,
) -> None:
    """Take the record that serves a problem out of the store, with a warning: it does not build."""
    found = _found(problem, device, kernel, priors, boundaries)
    if found is None:
        return
    document, key = found.document, found.key
    # Also where the store cannot be written.
    _refused.keep((found.home, document, found.record[0]), True)

    def without(content: store.Content) -> store.Content:
        records = {name: one for name, one in content.get("records", {}).items() if name != key}
        return {**content, "records": records}

    store.update(store.TUNED, document, without)
    warnings.warn(
        f"tuned configuration {document}, {record_words(key)}: does not build on {device.id!r}"
        f" ({why}); it is taken out, and the kernel's default serves",
        CacheWarning,
        stacklevel=3,
    )


class _Found(NamedTuple):
    """The record that serves a problem, its class, and where it stands."""

    home: Path
    document: str
    key: str
    shape_class: str
    record: Record


def _found(
    problem: Problem, device: Device, kernel: Kernel, priors: Priors, boundaries: Boundaries
) -> _Found | None:
    home = settings.cache_folder()
    if home is None:
        return None
    name = document_name(kernel, problem, device, priors)
    prefix = _prefix(kernel, problem, device, priors)
    shape_class = classify(problem, boundaries)
    for document in (name, *_others(home, prefix, name)):
        records = _records(home, document)
        for key, found_class in _keys(problem, shape_class, records):
            if (home, document, records[key][0]) not in _refused:
                return _Found(home, document, key, found_class, records[key])
    return None


def _keys(
    problem: Problem, shape_class: str, records: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Names of the records that may serve, with their class, the best first."""
    near = nearest(shape_class)
    for candidate in near:
        if (key := record_name(problem, candidate)) in records:
            yield key, candidate
    types = f"{problem.dtype} {problem.accumulate} "
    for candidate in near:
        for key in sorted(records):
            if key.startswith(types) and key.split(" ", 3)[3] == candidate:
                yield key, candidate


def _origin(found: _Found, wanted: str, problem: Problem, own: bool) -> str:
    words, layout = [f"{ORIGIN} {found.shape_class}"], found.key.split(" ")[2]
    if found.shape_class != wanted:
        words.append(f"the nearest class to {wanted}")
    if layout != layout_of(problem):
        words.append(f"layout {layout}")
    words.append("on this device" if own else "with another driver of this architecture")
    return ", ".join(words)


def _records(home: Path, name: str) -> Records:
    """By name the configuration, its ratio, and what it gained in words."""
    return _read.found((home, name), lambda: _records_of(name), lambda found: 400 * len(found))


def _records_of(name: str) -> Records:
    content = store.read(store.TUNED, name)
    try:
        return {
            str(key): (config_from_json(record["config"]), ratio_from_json(record), _gain(record))
            for key, record in content.get("records", {}).items()
            if len(key.split(" ", 3)) == 4
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        store.set_aside(store.TUNED, name, f"no tuned configurations ({error})")
        return {}


def _others(home: Path, prefix: str, name: str) -> tuple[str, ...]:
    def listed() -> tuple[str, ...]:
        return tuple(other for other in store.names(store.TUNED, prefix) if other != name)

    return _listed.found((home, prefix, name), listed, lambda found: 100 * len(found))


def _gain(record: Mapping[str, Any]) -> str:
    if float(record["ratio"]) == 1:
        return "nothing beat the default"
    return f"{ratio_from_json(record):.2f} of the default's time"


def ratio_from_json(record: Mapping[str, Any]) -> float:
    """The time over the default's on the shape of the proof that gained least.

    What one odd size gains says little of the others. Raises ValueError for what is no ratio.
    """
    ratio = max(map(float, record.get("ratios") or [record["ratio"]]))
    if not 0 < float(record["ratio"]) <= 1 or not ratio > 0:
        raise ValueError(f"ratio={record['ratio']!r}")
    return min(1.0, ratio)


def _prefix(kernel: Kernel, problem: Problem, device: Device, priors: Priors) -> str:
    what = (priors.digest_of(kernel.name), space_digest(kernel, problem, device))
    return f"{kernel.name}-{store.digest('|'.join((*what, architecture(device))))[:12]}-"


def space_digest(kernel: Kernel, problem: Problem, device: Device) -> str:
    """What changes whenever the configurations to choose from do."""
    if isinstance(kernel, Tunable):
        return store.digest(repr(kernel.space(problem, device)))
    return "listed"
