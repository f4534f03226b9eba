"""Networks in files: whole or not at all, and never believed."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bench.birealnet_model import birealnet18
from tests.support.onebit_networks import NETWORKS, image, shortcuts, thresholds
from tilewright import onebit
from tilewright.errors import FileError
from tilewright.files import npz as archive
from tilewright.onebit.layers import BitConv, Clamp

NDArray = npt.NDArray[Any]
Members = dict[str, bytes]


@pytest.mark.parametrize("make", NETWORKS)
def test_a_network_comes_back_as_it_was(make: Callable[[], onebit.Network], tmp_path: Path) -> None:
    network = make()
    onebit.save(network, tmp_path / "a.npz")
    again = onebit.load(tmp_path / "a.npz")
    x = image(network, 2)
    assert np.array_equal(again.run(x), network.run(x))
    assert (again.input_shape, again.output) == (network.input_shape, network.output)
    onebit.save(again, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def orders_of(array: NDArray) -> Iterator[NDArray]:
    """The same numbers as they may lie in memory."""
    yield array
    yield np.asfortranarray(array)
    yield np.repeat(array, 2, axis=-1)[..., ::2]
    yield array[::-1].copy()[::-1]
    yield np.broadcast_to(array, (1, *array.shape))[0]
    yield array.astype(array.dtype.newbyteorder(">"))


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "i4"])
def test_arrays_come_back_however_they_lay_in_memory(dtype: str, tmp_path: Path) -> None:
    array = np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7).astype(dtype)
    for index, lying in enumerate(orders_of(array)):
        path = tmp_path / f"{index}.npz"
        archive.write_arrays(path, {"a": lying}, "path")
        assert np.array_equal(archive.read_arrays(path, "path")["a"], array)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_arrays_that_could_not_be_read_again_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="array 'a': holds int64; accepted are"):
        archive.write_arrays(tmp_path / "a.npz", {"a": np.arange(3)}, "path")
    assert list(tmp_path.iterdir()) == []


def test_the_file_says_which_padding_it_was_trained_with(tmp_path: Path) -> None:
    network = thresholds()
    onebit.save(network, tmp_path / "a.npz")
    again = onebit.load(tmp_path / "a.npz")
    paddings = [layer.padding for layer in again.layers if isinstance(layer, BitConv)]
    assert paddings == ["zero", "minus_one", "zero"]
    assert again.paddings == ("minus_one", "zero")


def test_numpy_reads_it_without_unpickling(tmp_path: Path) -> None:
    onebit.save(shortcuts(), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        kinds = {arrays[name].dtype.name for name in arrays.files}
    assert header["format"] == "tilewright onebit network"
    assert kinds == {"uint8", "float16", "float32"}


def test_bi_real_net_18_takes_less_than_2_9_megabytes(tmp_path: Path) -> None:
    """Its weights do not depend on the image's size; a small one is converted sooner."""
    model = birealnet18(size=32).SerializeToString()
    assert 44e6 < len(model) < 48e6
    network, report = onebit.import_onnx(model)
    assert report.exact
    onebit.save(network, tmp_path / "birealnet.npz")
    assert (tmp_path / "birealnet.npz").stat().st_size <= 2_900_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("network") / "a.npz"
    onebit.save(shortcuts(), path)
    return path.read_bytes()


def members(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: Members, how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def npy(array: NDArray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def claim(shape: tuple[int, ...], dtype: str) -> bytes:
    """An .npy of sixteen bytes that says it has more."""
    out = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, fields)
    return out.getvalue() + bytes(16)


def header(content: bytes, change: Callable[[Any], object]) -> bytes:
    parts = members(content)
    fields = json.loads(np.load(io.BytesIO(parts["header.npy"])).tobytes())
    changed = change(fields)
    text = json.dumps(fields if changed is None else changed).encode()
    return packed(parts | {"header.npy": npy(np.frombuffer(text, np.uint8))})


def replaced(name: str, array: bytes) -> Callable[[bytes], bytes]:
    return lambda content: packed(members(content) | {name: array})


def without(name: str) -> Callable[[bytes], bytes]:
    return lambda content: packed({k: v for k, v in members(content).items() if k != name})


def changed(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    return lambda content: header(content, change)


def layer(index: int, **fields: Any) -> Callable[[bytes], bytes]:
    return changed(lambda h: h["layers"][index].update(fields))


def raw_header(text: bytes) -> Callable[[bytes], bytes]:
    return replaced("header.npy", npy(np.frombuffer(text, np.uint8)))


class Touch:
    """Unpickling one writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def doubled(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in members(content).items():
            archive.writestr(name, part)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("header.npy", b"")
    return out.getvalue()


WEIGHTS = "0.weights.npy"  # float16 of the stem
BITS = "2.weights.npy"
WINDOW = {"kernel": [3, 3], "stride": [1, 1], "dilation": [1, 1], "pads": [1] * 4}
HOSTILE: tuple[tuple[str, Callable[[bytes], bytes], str], ...] = (
    ("empty", lambda c: b"", "cannot be read"),
    ("text", lambda c: b"not an archive at all", "cannot be read"),
    ("no end", lambda c: c[:-1], "cannot be read"),
    ("half", lambda c: c[: len(c) // 2], "cannot be read"),
    ("a flipped bit", lambda c: c[:300] + bytes([c[300] ^ 1]) + c[301:], "cannot be read"),
    ("compressed", lambda c: packed(members(c), zipfile.ZIP_DEFLATED), "compressed"),
    ("doubled", doubled, "two members"),
    ("other member", replaced("readme.txt", b"hello"), "no array"),
    ("no header", without("header.npy"), "no network"),
    ("no weights", without(WEIGHTS), "'weights'|weights="),
    ("no bits", without(BITS), "'weights' is missing"),
    ("one more", replaced("99.scale.npy", npy(np.ones(4, np.float32))), "belong to no layer"),
    ("objects", replaced(WEIGHTS, npy(np.array([{}], object))), "object"),
    ("huge claim", replaced(WEIGHTS, claim((1 << 40,), "<f2")), "claims"),
    ("overflowing claim", replaced(WEIGHTS, claim((1 << 62, 1 << 62), "<f2")), "claims"),
    ("negative claim", replaced(WEIGHTS, claim((-8,), "<f2")), "claims"),
    ("float64", replaced(WEIGHTS, npy(np.ones(8))), "accepted is float16"),
    ("text array", replaced(WEIGHTS, npy(np.array(["a"]))), "accepted are"),
    ("no npy", replaced(WEIGHTS, b"abc"), "cannot be read"),
    ("open bracket", replaced(WEIGHTS, b"\x93NUMPY\x01\0\x09\0{'descr':"), "cannot be read"),
    ("nan", replaced(WEIGHTS, npy(np.full((40, 3, 3, 3), np.nan, np.float16))), "'stem': weights"),
    ("other shape", replaced(WEIGHTS, npy(np.ones((40, 3, 3, 2), np.float16))), "'stem'"),
    ("other kernel", replaced(WEIGHTS, npy(np.ones((40, 2, 3, 3), np.float16))), "'stem'"),
    ("few bits", replaced(BITS, npy(np.zeros((40, 44), np.uint8))), "'c0': weights"),
    ("bits as floats", replaced(BITS, npy(np.zeros((40, 45), np.float32))), "'c0': weights"),
    ("short scale", replaced("2.scale.npy", npy(np.ones(3, np.float32))), "'c0': scale"),
    ("nan scale", replaced("2.scale.npy", npy(np.full(40, np.nan, np.float32))), "'c0': scale"),
    ("no json", raw_header(b"{"), "header is damaged"),
    ("json list", raw_header(b"[]"), "header is damaged"),
    ("deep json", raw_header(b"[" * 100_000), "header is damaged"),
    ("no unicode", raw_header(b"\xff\xfe\x00"), "header is damaged"),
    ("version", changed(lambda h: h.update(version=2)), "version 2"),
    ("format", changed(lambda h: h.update(format="other")), "'other'"),
    ("no layers", changed(lambda h: h.pop("layers") and None), "'layers' is missing"),
    ("layers", changed(lambda h: h.update(layers=3)), "header is damaged"),
    ("type", layer(1, type="Loop"), "type 'Loop'"),
    ("hidden type", layer(1, type="Layer"), "type 'Layer'"),
    ("field", layer(1, colour=1), "header is damaged"),
    ("input", layer(1, inputs=["nowhere"]), "'nowhere'"),
    ("inputs", layer(1, inputs=7), "header is damaged"),
    ("input sizes", changed(lambda h: h.update(input=[8, 8, -3])), "input_shape"),
    ("large input", changed(lambda h: h.update(input=[1 << 14, 1 << 14, 3])), "2\\^28 elements"),
    ("output", changed(lambda h: h.update(output="x")), "output='x'"),
    ("window", layer(0, window={"kernel": [3, 3]}), "'stride' is missing"),
    ("no stride", layer(0, window=WINDOW | {"stride": [0, 1]}), "stride"),
    ("huge pads", layer(0, window=WINDOW | {"pads": [10**9] * 4}), "pads"),
    ("long input", changed(lambda h: h.update(input=[1 << 31, 1, 1])), "input_shape"),
    ("large pads", layer(0, window=WINDOW | {"pads": [60000] * 4}), "elements"),
    ("groups", layer(2, groups=0), "'c0': groups=0"),
    ("groups text", layer(2, groups="2"), "'c0': groups"),
    ("padding", layer(2, padding="same"), "'c0': padding"),
    ("shape", layer(2, shape=[40, 3, 3]), "'c0': shape"),
    ("shape of more", layer(2, shape=[40, 3, 3, 1 << 50]), "'c0': weights"),
    ("shape of less", layer(2, shape=[40, 3, 3, -40]), "'c0': shape"),
)  # fmt: skip


@pytest.mark.parametrize(("spoil", "said"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_a_damaged_or_hostile_file_is_one_clear_error(
    whole: bytes, spoil: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(spoil(whole))
    with pytest.raises(FileError, match=said) as caught:
        onebit.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("low", [10**400, "1", 1e39, [0], None])
def test_limits_of_a_clamp_are_numbers_that_float32_holds(low: Any, tmp_path: Path) -> None:
    network = onebit.Network((4,), (Clamp(name="c", inputs=("input",), low=0.0),))
    path = tmp_path / "a.npz"
    onebit.save(network, path)
    path.write_bytes(layer(0, low=low)(path.read_bytes()))
    if low is None:  # how the file says infinity
        assert onebit.load(path).run(np.full(4, -5, np.float32)).tolist() == [-5] * 4
        return
    with pytest.raises(FileError, match="'c': low="):
        onebit.load(path)


def test_bits_past_the_weights_must_be_zero(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    onebit.save(thresholds(), path)  # 585 weights a row: 7 bits of the last byte are no weights
    name = "1.weights.npy"
    spoiled = np.load(io.BytesIO(members(path.read_bytes())[name])).copy()
    spoiled[:, -1] |= 0x80
    path.write_bytes(packed(members(path.read_bytes()) | {name: npy(spoiled)}))
    with pytest.raises(FileError, match="bits past their 585"):
        onebit.load(path)


def test_nothing_is_unpickled(whole: bytes, tmp_path: Path) -> None:
    target = tmp_path / "unpickled"
    pickled = npy(np.array([Touch(target)], object))
    for content in (replaced(WEIGHTS, pickled)(whole), replaced("header.npy", pickled)(whole)):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(FileError, match="object"):
            onebit.load(tmp_path / "bad.npz")
    (tmp_path / "bad.npz").write_bytes(pickle.dumps(Touch(target)))
    with pytest.raises(FileError):
        onebit.load(tmp_path / "bad.npz")
    assert not target.exists()


def test_every_truncation_and_many_flipped_bytes_raise_nothing_else(
    whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "bad.npz"
    generator = np.random.default_rng(0)
    for end in generator.integers(0, len(whole), 60):
        path.write_bytes(whole[:end])
        with pytest.raises(FileError):
            onebit.load(path)
    for place in generator.integers(0, len(whole), 200):
        spoiled = bytearray(whole)
        spoiled[place] ^= int(generator.integers(1, 256))
        path.write_bytes(spoiled)
        with contextlib.suppress(FileError):  # a byte of a date or a file mode changes nothing
            onebit.load(path)


def test_a_saved_network_has_the_permissions_of_any_other_file_and_a_link_stays_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "link.npz").symlink_to(tmp_path / "a.npz")
    onebit.save(NETWORKS[0](), tmp_path / "link.npz")
    (tmp_path / "plain").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.npz", "plain")]
    assert modes[0] == modes[1]
    assert (tmp_path / "link.npz").is_symlink()


def test_a_folder_or_an_absent_file_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.npz"):
        with pytest.raises(FileError, match="path="):
            onebit.load(path)


def test_saving_where_nothing_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="suffix"):
        onebit.save(shortcuts(), tmp_path / "a.npy")
    with pytest.raises(FileError, match="cannot be written"):
        onebit.save(shortcuts(), tmp_path / "absent" / "a.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(FileError, match="cannot be written"):
        onebit.save(shortcuts(), tmp_path / "folder.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npz"]
