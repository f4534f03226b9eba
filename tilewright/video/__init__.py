"""Films: decoded, made better picture by picture, encoded; nothing else of them changed.

frames    the pictures of a film, planes as NumPy views
enhance   a film out of another, through stages
analyse   what a film is like, and which stages would help (Analysis, Advice)
Deblock, Denoise, LowLight, Dehaze, Contrast, Interpolate, Upscale, Sharpen, TenBit
                          stages (stages/contract.py)
Detect, Follow, Draw      stages that find things, follow them, and draw them
Listed                    things of an earlier run in their place, whose tracks have numbers
PlateMatte, KeyMatte, NetMatte, MaskMatte or BoxMatte, then Blur, Background or Alpha
                          somebody apart from what lies behind them
Frame, Look               a picture, and what pictures of a film are
Enhanced, Progress        what was made, and how far it is

Needs PyAV: `pip install 'tilewright[video]'`. docs/video.md follows a film through.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tilewright.video.advice import Advice, Analysis, analyse
    from tilewright.video.decode import frames
    from tilewright.video.job import Enhanced
    from tilewright.video.look import Frame, Look
    from tilewright.video.making import Progress, enhance
    from tilewright.video.stages.alpha import Alpha
    from tilewright.video.stages.background import Background
    from tilewright.video.stages.blur import Blur
    from tilewright.video.stages.box_matte import BoxMatte
    from tilewright.video.stages.contrast import Contrast
    from tilewright.video.stages.deblock import Deblock
    from tilewright.video.stages.dehaze import Dehaze
    from tilewright.video.stages.denoise import Denoise
    from tilewright.video.stages.detect import Detect
    from tilewright.video.stages.draw import Draw
    from tilewright.video.stages.follow import Follow
    from tilewright.video.stages.interpolate import Interpolate
    from tilewright.video.stages.key_matte import KeyMatte
    from tilewright.video.stages.listed import Listed
    from tilewright.video.stages.low_light import LowLight
    from tilewright.video.stages.mask_matte import MaskMatte
    from tilewright.video.stages.net_matte import NetMatte
    from tilewright.video.stages.plate_matte import PlateMatte
    from tilewright.video.stages.sharpen import Sharpen
    from tilewright.video.stages.ten_bit import TenBit
    from tilewright.video.stages.upscale import Upscale

__all__ = [
    "Advice",
    "Alpha",
    "Analysis",
    "Background",
    "Blur",
    "BoxMatte",
    "Contrast",
    "Deblock",
    "Dehaze",
    "Denoise",
    "Detect",
    "Draw",
    "Enhanced",
    "Follow",
    "Frame",
    "Interpolate",
    "KeyMatte",
    "Listed",
    "Look",
    "LowLight",
    "MaskMatte",
    "NetMatte",
    "PlateMatte",
    "Progress",
    "Sharpen",
    "TenBit",
    "Upscale",
    "analyse",
    "enhance",
    "frames",
]
_PLACES = {
    "Advice": "advice",
    "Alpha": "stages.alpha",
    "Analysis": "advice",
    "Background": "stages.background",
    "Blur": "stages.blur",
    "BoxMatte": "stages.box_matte",
    "Contrast": "stages.contrast",
    "Deblock": "stages.deblock",
    "Dehaze": "stages.dehaze",
    "Denoise": "stages.denoise",
    "Detect": "stages.detect",
    "Draw": "stages.draw",
    "Follow": "stages.follow",
    "Enhanced": "job",
    "Frame": "look",
    "Interpolate": "stages.interpolate",
    "KeyMatte": "stages.key_matte",
    "Listed": "stages.listed",
    "Look": "look",
    "LowLight": "stages.low_light",
    "MaskMatte": "stages.mask_matte",
    "NetMatte": "stages.net_matte",
    "PlateMatte": "stages.plate_matte",
    "Progress": "making",
    "Sharpen": "stages.sharpen",
    "TenBit": "stages.ten_bit",
    "Upscale": "stages.upscale",
    "analyse": "advice",
    "enhance": "making",
    "frames": "decode",
}


def __getattr__(name: str) -> _typing.Any:
    """What the files here have under this name, loaded when somebody first asks for it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
