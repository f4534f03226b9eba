"""
A film, twice as large
======================

``tilewright.video.enhance`` makes a film out of another; stages are networks and filters. The film
here is drawn by the script, so that it is known how it should look: a small, compressed copy of it
is enlarged, and compared with the large original.
"""

import tempfile
import time
from pathlib import Path

import av
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

from tilewright import video

# %%
# Eight pictures of a rosette that turns, drawn at 480 x 320 and written at half of that.
width, height, count = 480, 320, 8


def picture(number: int) -> Image.Image:
    large = Image.new("RGB", (2 * width, 2 * height), (28, 34, 52))
    draw = ImageDraw.Draw(large)
    for petal in range(24):
        angle = 2 * np.pi * petal / 24 + number / 40
        tip = width + 560 * np.cos(angle) * 0.5, height + 560 * np.sin(angle) * 0.5
        colour = (90 + 6 * petal, 200 - 5 * petal, 230 - 3 * petal)
        draw.line([(width, height), tip], fill=colour, width=9)
        draw.ellipse([tip[0] - 16, tip[1] - 16, tip[0] + 16, tip[1] + 16], outline=colour, width=5)
    return large.resize((width, height), Image.Resampling.LANCZOS)


originals = [picture(number) for number in range(count)]
folder = Path(tempfile.mkdtemp())
with av.open(folder / "small.mp4", "w") as file:
    stream = file.add_stream("libx264", rate=25, options={"crf": "20"})
    stream.width, stream.height, stream.pix_fmt = width // 2, height // 2, "yuv420p"
    for original in originals:
        small = original.resize((width // 2, height // 2), Image.Resampling.BICUBIC)
        file.mux(stream.encode(av.VideoFrame.from_image(small)))
    file.mux(stream.encode())

# %%
# The line that matters. What of a film is not pictures (sound, subtitles, times) is kept.
begin = time.perf_counter()
done = video.enhance(folder / "small.mp4", folder / "large.mp4", [video.Upscale("s")])
print(f"{done.frames} pictures in {time.perf_counter() - begin:.1f} s")

# %%
# Luma beside the original's, and a bicubic filter's: peak signal-to-noise ratio in decibels, more
# is better.


def luma(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L"), np.float64)


def decibels(image: Image.Image, original: Image.Image) -> float:
    apart = (luma(image) - luma(original))[8:-8, 8:-8]
    return float(10 * np.log10(255**2 / np.mean(apart**2)))


pictures = [
    [frame.carrier.to_image() for frame in video.frames(folder / name)]
    for name in ("small.mp4", "large.mp4")
]
smooth = [one.resize((width, height), Image.Resampling.BICUBIC) for one in pictures[0]]
by_filter, by_network = (
    np.mean([decibels(*both) for both in zip(made, originals, strict=True)])
    for made in (smooth, pictures[1])
)
print(f"bicubic filter {by_filter:.2f} dB, enhanced {by_network:.2f} dB")
assert by_network > by_filter

part = (250, 60, 410, 180)
fig, axes = plt.subplots(1, 3, figsize=(9, 2.7), layout="constrained")
heads = f"bicubic, {by_filter:.1f} dB", f"enhanced, {by_network:.1f} dB", "as it was drawn"
for axis, head, image in zip(axes, heads, (smooth[4], pictures[1][4], originals[4]), strict=True):
    axis.imshow(image.crop(part), interpolation="nearest")
    axis.set(title=head, xticks=[], yticks=[])
plt.show()
