"""A film made twice as large by PyAV and onnxruntime in Python: what a user would write else.

Decoder, network and encoder are threads with queues between them, luma goes through onnxruntime,
chroma through swscale's bicubic filter, pictures into the same x264 with the same options. Sound
is not copied, the film is not read again, and a run that stops leaves nothing: less work than ours.
As many pictures are worked on at once as there are sessions.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import av
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from tilewright.nn import Network

_DEPTH = 4


def onnx_of(net: Network, planes: int = 1) -> bytes:
    """A network of ONNX's operators as a file's bytes; its input has so many planes."""
    graph = net.graph
    nodes = [
        helper.make_node(
            node.operator, list(node.inputs), list(node.outputs), **_plain(node.attributes)
        )
        for node in graph.nodes
    ]
    given = [
        helper.make_tensor_value_info(one.name, onnx.TensorProto.FLOAT, [1, planes, "h", "w"])
        for one in graph.inputs
    ]
    made = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in graph.outputs
    ]
    constants = [
        numpy_helper.from_array(np.asarray(held.value), name)
        for name, held in graph.constants.items()
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "film", given, made, constants),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 8
    content: bytes = model.SerializeToString()
    return content


def _plain(attributes: Any) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in attributes.items()}


def session(model: bytes, threads: int) -> Any:
    """A session of so many threads, which do not spin when they wait."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def film(source: Path, out: Path, sessions: list[Any], threads: int) -> int:
    """Make it; how many pictures it has."""
    decoded: Queue[Any] = Queue(_DEPTH)
    made: Queue[Any] = Queue(_DEPTH)
    with av.open(str(source)) as given, av.open(str(out), "w") as sink:
        old: Any = given.streams.video[0]
        old.thread_type = "AUTO"
        new: Any = sink.add_stream("libx264", rate=old.average_rate, options=_coding(threads))
        new.width, new.height, new.pix_fmt = 2 * old.width, 2 * old.height, "yuv420p"
        new.codec_context.time_base = old.time_base
        parts = [
            Thread(target=_decode, args=(given, old, decoded)),
            Thread(target=_enlarge, args=(sessions, decoded, made)),
        ]
        for part in parts:
            part.start()
        count = 0
        while (frame := made.get()) is not None:
            sink.mux(new.encode(frame))
            count += 1
        sink.mux(new.encode(None))
        for part in parts:
            part.join()
    return count


def _coding(threads: int) -> dict[str, str]:
    from tilewright.video.codecs import CODECS
    from tilewright.video.look import Light

    kind = CODECS["h264"]
    light = kind.light(Light()) if kind.light else {}
    return {**dict(kind.options), **light, "crf": str(kind.crf), "threads": str(threads)}


def _decode(given: Any, stream: Any, out: Queue[Any]) -> None:
    for frame in given.decode(stream):
        out.put(frame)
    out.put(None)


def _enlarge(sessions: list[Any], given: Queue[Any], out: Queue[Any]) -> None:
    free: Queue[Any] = Queue()
    for session in sessions:
        free.put(session)

    def one(frame: Any) -> Any:
        mine = free.get()
        try:
            return _enlarged(mine, frame)
        finally:
            free.put(mine)

    running: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(len(sessions)) as pool:
        while (frame := given.get()) is not None:
            running.append(pool.submit(one, frame))
            if len(running) >= 2 * len(sessions):
                out.put(running.popleft().result())
        while running:
            out.put(running.popleft().result())
    out.put(None)


def _enlarged(session: Any, frame: Any) -> Any:
    """A picture twice as large."""
    wide, high = 2 * frame.width, 2 * frame.height
    made = av.VideoFrame(wide, high, "yuv420p")
    luma = _samples(frame.planes[0], frame.height, frame.width)
    given = np.multiply(luma, np.float32(1 / 255), dtype=np.float32)[None, None]
    (large,) = session.run(None, {"luma": given})
    np.multiply(large, 255, out=large)
    np.rint(large, out=large)
    np.clip(large, 0, 255, out=large)
    _samples(made.planes[0], high, wide)[...] = large[0, 0]
    for number in (1, 2):
        plane = np.ascontiguousarray(
            _samples(frame.planes[number], frame.height // 2, frame.width // 2)
        )
        small = av.VideoFrame.from_ndarray(plane, "gray")
        chroma = small.reformat(wide // 2, high // 2, interpolation="BICUBIC")
        _samples(made.planes[number], high // 2, wide // 2)[...] = chroma.to_ndarray()
    made.pts, made.time_base = frame.pts, frame.time_base
    return made


def _samples(plane: Any, rows: int, columns: int) -> Any:
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:rows, :columns]
