"""Writes the images of this folder, and `expected.txt` with what Pillow decodes them to.

    python tests/native_images/write.py        (Pillow 13.0, with libjpeg-turbo; NumPy)

A line: file, height, width, the RGB values in hexadecimal, and the gray ones.
"""

from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
HEIGHT, WIDTH = 9, 13

rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
noise = np.random.default_rng(7).integers(0, 40, (HEIGHT, WIDTH, 4))
smooth = np.stack([rows * 22, columns * 16, 200 - rows * 9 - columns * 5, 255 - columns * 9], -1)
rgba = np.clip(smooth + noise, 0, 255).astype(np.uint8)
color = Image.fromarray(rgba[..., :3])
transparent = Image.fromarray(rgba)
gray = Image.fromarray(rgba[..., 0])
bits = gray.convert("1")

images = {
    "rgb.bmp": (color, {}),
    "palette.bmp": (color.quantize(16), {}),
    "444.jpg": (color, {"subsampling": "4:4:4"}),
    "422.jpg": (color, {"subsampling": "4:2:2"}),
    "420.jpg": (color, {"subsampling": "4:2:0"}),
    "progressive.jpg": (color, {"progressive": True}),
    "gray.jpg": (gray, {}),
    "rgb.png": (color, {}),
    "rgba.png": (transparent, {}),
    "palette.png": (color.quantize(16), {}),
    "gray.png": (gray, {}),
    "gray_alpha.png": (transparent.convert("LA"), {}),
    "bits.png": (bits, {}),
    "bits.pbm": (bits, {}),
    "gray.pgm": (gray, {}),
    "rgb.ppm": (color, {}),
    "rgb.tiff": (color, {}),
    "lzw.tiff": (color, {"compression": "tiff_lzw"}),
    "deflate.tiff": (transparent, {"compression": "tiff_adobe_deflate"}),
    "lossless.webp": (color, {"lossless": True}),
    "transparent.webp": (transparent, {"lossless": True, "exact": True}),
}
lines = []
for name, (image, options) in images.items():
    image.save(HERE / name, **options)
    decoded = Image.open(HERE / name)
    rgb = np.asarray(decoded.convert("RGB"))
    luma = np.asarray(decoded.convert("L"))
    lines.append(f"{name} {rgb.shape[0]} {rgb.shape[1]} {rgb.tobytes().hex()} {luma.tobytes().hex()}\n")
(HERE / "expected.txt").write_text("".join(lines))
