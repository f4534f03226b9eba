"""One cache folder for the whole session, and the OpenCL devices that this machine has."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import psutil
import pytest
import typer.testing

import tilewright
from tests.support import compiled_once, gpu_lock, told_once
from tests.support.runs import KERNELS
from tilewright import Device
from tilewright.backends.host import compiled, ragged
from tilewright.backends.opencl import rules
from tilewright.calls.dense_plan_host import forget_plans
from tilewright.inputs.devices import host

# Commands in this process are made once: typer's runner does it for every call, 37 of 45 ms.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]

# What a test means by a name: a part of the driver's platform, as `device="opencl:..."` takes it.
DRIVERS = {"intel": "Intel(R) OpenCL", "pocl": "Portable Computing Language"}
# Mesa's, which has no device before it is asked for one (`make mesa`): it compiles for minutes.
MESA = {"rusticl": "rusticl"}

# The same examples in every run, so that a red build is red again; HYPOTHESIS_PROFILE=explore
# looks further.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """A cache of our own, PoCL's too: nothing that an earlier run measured or tuned is found.

    Machine code alone is (compiled_once.py): that of the very same sources.
    """
    if hasattr(config, "workerinput"):  # of pytest-xdist: inherits the folder from its controller
        locks = Path(os.environ["TILEWRIGHT_CACHE"], "locks")
        compiled_once.share(locks)
        number = int(config.workerinput["workerid"].removeprefix("gw"))
        compiled_once.write_tests(locks, config, number, config.workerinput["workercount"])
        told_once.tell_less(config)
        atexit.register(_end)
        return
    folder = Path(tempfile.mkdtemp(prefix="tilewright-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name in ("pocl", "locks"):
        (folder / name).mkdir()
    compiled_once.keep(folder, getattr(config, "cache", None))
    os.environ["TILEWRIGHT_CACHE"] = str(folder)
    os.environ["POCL_CACHE_DIR"] = str(folder / "pocl")
    for name in ("TILEWRIGHT_DEVICE", "TILEWRIGHT_MEMORY"):
        os.environ.pop(name, None)
    # Workers share the cores. Threads that look for work meanwhile, as OpenMP's do, take them from
    # those who have some: 80 steps of training took 23 s of them, and 2 with a thread a worker.
    # One process alone has loaded NumPy already: its children are to have as many threads as it.
    if config.getoption("tx", None):
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    # Some containers set it: every worker and every process of a test would compile each file anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Files whose tests of one process take 15 seconds and more, the longest first: where several
# processes share the work, these begin, and at the end there is only what takes little.
LONG = (
    "test_conv_single",  # compiles what others then read
    *("test_pages", "test_oclgrind", "test_planner_simulator", "test_hopper_compile"),
    *("test_onebit", "test_kernels", "test_grouped", "test_conv_whole", "test_grouped_single"),
    *("test_chain_compile", "test_cli_grouped", "test_detect_survival", "test_ladder"),
    *("test_fp8_compile", "test_long_sums", "test_cli_ending", "test_film_opencl"),
    *("test_cli_demo", "test_triton_interpreter", "test_hidden", "test_triton_ragged"),
    *("test_onebit_fork", "test_stem", "test_onnx_check", "test_cli_onebit", "test_peak"),
    *("test_quantised", "test_moe_triton", "test_triton_conv"),
)
HAS_GPU = (
    any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd"))
    and os.environ.get("CUDA_VISIBLE_DEVICES") != ""  # hides them all
)
# What tells apart tests of one file that share nothing.
APART = frozenset((*DRIVERS, *MESA, *KERNELS))
# Files that share what takes seconds to make or to load: the standard's node tests, and libraries
# that no other test loads.
TOGETHER = {
    "tests/nn/test_values.py": "tests/nn/operators/test_standard.py",
    "tests/doors/test_pyg.py": "tests/test_pages.py",
    "tests/doors/test_transformers.py": "tests/test_pages.py",
    "tests/jax/test_ragged_dot.py": "tests/test_pages.py",
}
MANY = 4  # processes, from which on there are more of them than long groups
# New objects before the youngest are looked at, then how often before those that were left.
GARBAGE = (10_000, 20, 20)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nobody looks for garbage in what collecting makes, which stays: that took 3.5 s of 18.

    Nor does a test that looks for some, half a second each time. At the end all is seen again.
    Tests make and drop objects by the million, so that garbage is looked for more seldom: of 121 s
    of six of their paths that took 6.6, and takes 2.8. A test that needs something to be gone
    collects by itself.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()
    atexit.register(gc.unfreeze)


def _end() -> None:
    """A worker that has told all it found ends here, once whoever asked to be called then was.

    Python would take apart every object that there is, 3 s a worker.
    """
    atexit.unregister(_end)
    atexit.unregister(gc.unfreeze)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes (`-n 2`), each begins with what takes long."""
    if hasattr(config, "workerinput"):
        rank = {stem: place for place, stem in enumerate(LONG)}
        items.sort(key=lambda item: rank.get(item.path.stem, len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which tests stay in one process: those of a file, by driver and kernel.

    So a program is compiled once, and a module's fixtures are made once. By names, as marks for
    groups do not reach the scheduler with every version of pytest. Many processes would wait for
    the longest group, so that they take tests from each other instead: on a machine of 16 cores
    with a GPU 80 s in place of 150.
    """
    from xdist.scheduler.loadscope import LoadScopeScheduling
    from xdist.scheduler.worksteal import WorkStealingScheduling
    from xdist.workermanage import parse_tx_spec_config

    if len(parse_tx_spec_config(config)) >= MANY:
        return WorkStealingScheduling(config, log)

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def add_node_collection(self, node: Any, collection: Any) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:
                self.registered_collections[node] = Numbered(collection)

    config.option.loadscopereorder = False
    return Groups(config, log)


class Numbered(list[str]):
    """Names of tests that know their place; looked for one by one they took a process 1.7 s."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self._places = {name: place for place, name in enumerate(self)}

    def index(self, name: str, *_: Any) -> int:
        return self._places[name]


def group_of(nodeid: str, *, gpu: bool = HAS_GPU) -> str:
    """`test_kernels.py::test_x[intel-3x5x7-local]` is of test_kernels, intel and local.

    Files that share what is dear are one group, and those with tests of a GPU where there is one:
    its clocks and memory are one.
    """
    file, _, rest = nodeid.partition("::")
    if gpu and "mark.gpu" in (Path(__file__).parent.parent / file).read_text(encoding="utf-8"):
        return "gpu"
    words = rest.partition("[")[2].rstrip("]").split("-")
    return "-".join([TOGETHER.get(file, file), *sorted(APART.intersection(words))])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests of a GPU run side by side, but for those that measure it: they have it alone."""
    if HAS_GPU and item.get_closest_marker("gpu"):
        with gpu_lock.held(alone=item.get_closest_marker("alone") is not None):
            yield
    else:
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The same draws in every run, whichever tests went before: fixtures' too, CUDA's too."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        # The host's alone where there is no GPU: asking each kind for its GPUs takes 0.1 ms.
        (torch if HAS_GPU else torch.default_generator).manual_seed(0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `device` runs on every driver for this processor, and on a GPU if any."""
    if "device" not in metafunc.fixturenames:
        return
    names: list[object] = list(DRIVERS)
    platforms = {d.platform for d in tilewright.devices()}
    names += [name for name, platform in MESA.items() if platform in platforms]
    if any(d.kind == "gpu" and d.backend == "opencl" for d in tilewright.devices()):
        names.append(pytest.param("gpu", marks=pytest.mark.gpu))
    metafunc.parametrize("device", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    return find_device(request.param)


@pytest.fixture(scope="session")
def intel() -> Device:
    return find_device("intel")


@pytest.fixture(scope="session")
def pocl() -> Device:
    return find_device("pocl")


@pytest.fixture(scope="session")
def opencl_device() -> Device:
    """Any one OpenCL device, for what does not depend on the driver."""
    for device in tilewright.devices():
        if device.backend == "opencl" and device.kind != "simulator":
            return device
    return pytest.skip("no OpenCL device: pip install 'tilewright[cpu]'")


@pytest.fixture
def little_memory() -> Iterator[None]:
    """This process may have 64 GiB of addresses more than it has now.

    Where `vm.overcommit_memory` is 1 terabytes are handed out, and who writes into them is ended.
    """
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + (1 << 36)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def find_device(name: str) -> Device:
    wanted: Callable[[Device], bool]
    if name == "gpu":
        wanted = lambda device: device.kind == "gpu" and device.backend == "opencl"  # noqa: E731
    else:
        wanted = lambda device: device.platform == (DRIVERS | MESA)[name]  # noqa: E731
    for device in tilewright.devices():
        if wanted(device):
            why = _why_it_compiles_nothing(device.id)
            return pytest.skip(why) if why else device
    return pytest.skip(f"no OpenCL device of {DRIVERS.get(name, name)}")


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """What a driver is not asked to compile (rules.toml) is skipped, with the reason."""
    outcome: Any = yield
    error = outcome.excinfo[1] if outcome.excinfo else None
    if isinstance(error, tilewright.errors.BuildError):
        refused = [one.reason for one in rules.read()[2] if one.programs]
        if any(reason in str(error) for reason in refused):
            outcome.force_exception(pytest.skip.Exception(str(error)))


@functools.cache
def _why_it_compiles_nothing(device: str) -> str:
    """A driver may be older than the processor: PoCL 3.0 does not know a Zen 5."""
    one = np.ones((1, 1), np.float32)
    try:
        tilewright.matmul(one, one, device=device, kernel="naive")
    except tilewright.errors.BuildError as error:
        return f"{device} compiles nothing for this processor: {error}"
    return ""


@pytest.fixture(scope="session")
def compiled_for_all() -> None:
    """What multiplies rows of tensors in the host's memory, which a call does not wait for: where
    it is ready between two calls they differ by roundings."""
    if compiled.available():
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            ragged.compile_for(host(), dtype)


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, and no plans from before it.

    What an earlier test had compiled beside its calls is waited for: its files would come to lie in
    this folder, where some are counted.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("tilewright-compiles"):
            thread.join()
    folder = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
    forget_plans()
    yield folder
    forget_plans()


@pytest.fixture
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables whose times do not matter: threads may spin beside who comes next."""
    monkeypatch.setattr("tilewright.report.onebit_bench.REST", 0.0)
    monkeypatch.setattr("tilewright.report.net_peers.REST", 0.0)
