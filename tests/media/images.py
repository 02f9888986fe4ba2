"""Writes images.json: what Pillow decodes and resizes, and what image processors of transformers
make of it.

    pip install "transformers==4.57.6" pillow==13.0.0 numpy
    python tests/media/images.py

The file was made with these versions. A processor's result is shown by its shape, the sum of its
elements and of their absolute values, and 64 elements from all over it; a resized image by a hash
of its bytes (FNV-1a of 64 bits).
"""

import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin
from transformers import (
    BeitImageProcessor,
    BitImageProcessor,
    BlipImageProcessor,
    CLIPImageProcessor,
    ConvNextImageProcessor,
    DeiTImageProcessor,
    Gemma3ImageProcessor,
    Idefics3ImageProcessor,
    MobileNetV2ImageProcessor,
    Qwen2VLImageProcessor,
    SiglipImageProcessor,
    SmolVLMImageProcessor,
    ViTImageProcessor,
)

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def pattern(width, height, seed, channels=3):
    """Smooth shapes and noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for channel in range(channels):
        smooth = 90 * np.sin(x / (3.1 + channel) + seed) + 60 * np.cos(y / (5.7 - channel) - seed)
        noise = (x * 7919 + y * 104729 + seed * 31 + channel * 17) * 2654435761 % 2**32 >> 26
        planes.append(np.clip(128 + smooth + noise - 32, 0, 255))
    return np.stack(planes, -1).astype(np.uint8)


def saved(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width, height, depth, colour, rows):
    """A PNG of bits that Pillow does not write; `rows` are packed bytes."""

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = b"".join(b"\0" + row for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def sixteen(values, colour):
    height, width = values.shape[:2]
    return png(width, height, 16, colour, [row.astype(">u2").tobytes() for row in values])


def files():
    rgb = lambda *args: Image.fromarray(pattern(*args))
    gray = lambda *args: Image.fromarray(pattern(*args, 1)[..., 0])
    wide = pattern(12, 10, 3).astype(np.uint16) * 251 + np.arange(3, dtype=np.uint16) * 101
    palette = rgb(13, 11, 5).quantize(20)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "one pixel", saved(rgb(1, 1, 1), "PNG")
    yield "very wide", saved(rgb(211, 3, 2), "PNG")
    yield "very high", saved(rgb(2, 197, 3), "PNG")
    yield "gray", saved(gray(20, 17, 4), "PNG")
    yield "palette", saved(palette, "PNG")
    yield "palette with transparency", saved(palette, "PNG", transparency=3)
    yield "alpha", saved(Image.fromarray(pattern(19, 14, 6, 4)), "PNG")
    yield "gray with alpha", saved(Image.fromarray(pattern(8, 9, 7, 2)), "PNG")
    yield "gray of 16 bits", sixteen(np.arange(300, dtype=np.uint16).reshape(15, 20) * 219, 0)
    yield "RGB of 16 bits", sixteen(wide, 2)
    yield "gray with alpha of 16 bits", sixteen(wide[..., :2], 4)
    yield "alpha of 16 bits", sixteen(np.concatenate([wide, wide[..., :1]], -1), 6)
    yield "black and white", saved(gray(21, 10, 8).convert("1"), "PNG")
    yield "gray of 2 bits", png(9, 3, 2, 0, [bytes([0x1B, 0xE4, 0x80]), bytes([0xFF, 0, 0x40]), bytes([0x72, 0x39, 0xC0])])
    yield "gray of 4 bits", png(5, 2, 4, 0, [bytes([0x01, 0x7F, 0x80]), bytes([0xA5, 0x5A, 0xF0])])
    yield "PNG held sideways", saved(rgb(17, 12, 9), "PNG", exif=exif)
    yield "bitmap", saved(rgb(17, 12, 9), "BMP")
    yield "WebP without loss", saved(rgb(30, 21, 10), "WEBP", lossless=True)
    yield "WebP with alpha", saved(Image.fromarray(pattern(16, 16, 6, 4)), "WEBP", lossless=True, exact=True)
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        yield f"WebP of orientation {orientation}", saved(rgb(7, 5, 11), "WEBP", lossless=True, exif=exif)
        yield f"lossy JPEG of orientation {orientation}", saved(rgb(23, 17, 11), "JPEG", quality=95, subsampling=0, exif=exif)
    # A tag that counts for more than XMP, and XMP without such a tag.
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
    yield "lossy JPEG of an orientation by XMP", saved(rgb(23, 17, 11), "JPEG", quality=95, subsampling=0, xmp=xmp)
    yield "lossy JPEG of two orientations", saved(rgb(23, 17, 11), "JPEG", quality=95, subsampling=0, exif=exif, xmp=xmp.replace(b"8", b"3"))
    yield "WebP of an orientation by XMP", saved(rgb(7, 5, 11), "WEBP", lossless=True, xmp=xmp)
    note = PngImagePlugin.PngInfo()
    note.add_itxt("XML:com.adobe.xmp", xmp.decode())
    yield "PNG of an orientation by XMP", saved(rgb(7, 5, 11), "PNG", pnginfo=note)
    plain = saved(rgb(7, 5, 11), "PNG")
    exif[0x0112] = 5
    body = b"eXIf" + exif.tobytes()[6:]
    late = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    yield "PNG of an orientation behind the pixels", plain[:-12] + late + plain[-12:]
    yield "lossy WebP", saved(rgb(45, 33, 12), "WEBP", quality=80)
    yield "lossy JPEG 4:4:4", saved(rgb(45, 33, 12), "JPEG", quality=90, subsampling=0)
    yield "lossy JPEG 4:2:2", saved(rgb(45, 33, 12), "JPEG", quality=90, subsampling=1)
    yield "lossy JPEG 4:2:0", saved(rgb(45, 33, 12), "JPEG", quality=90, subsampling=2)
    yield "lossy JPEG progressive", saved(rgb(61, 40, 13), "JPEG", quality=75, progressive=True)
    yield "lossy JPEG gray", saved(gray(40, 31, 14), "JPEG", quality=85)
    yield "lossy JPEG CMYK", saved(rgb(24, 18, 15).convert("CMYK"), "JPEG", quality=95, subsampling=0)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def decoded(data):
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")


def resizes():
    cases = []
    for (width, height), sizes in [
        ((37, 23), [(16, 16), (50, 40), (37, 5), (8, 23), (1, 1), (38, 24)]),
        ((1, 1), [(5, 3)]),
        ((300, 2), [(7, 9), (299, 3)]),
        ((641, 427), [(224, 224), (336, 223)]),
    ]:
        image = Image.fromarray(pattern(width, height, width))
        for size in sizes:
            hashes = {name: fnv(image.resize(size, number).tobytes()) for name, number in FILTERS.items()}
            cases.append({"from": [width, height], "to": size, "hashes": hashes})
    return cases


def shown(array):
    array = np.asarray(array)
    flat = array.astype(np.float64).ravel()
    places = np.linspace(0, flat.size - 1, 64).astype(int) if flat.size > 64 else np.arange(flat.size)
    return {
        "shape": list(array.shape),
        "sum": flat.sum(),
        "absolute": np.abs(flat).sum(),
        "at": places.tolist(),
        "elements": [float(f"{value:.9g}") for value in flat[places]],
    }


def processors():
    clip = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    yield "CLIPImageProcessor", CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}
    )
    # More than the image in one direction: zeros around it.
    yield "CLIPImageProcessor", CLIPImageProcessor(
        size={"shortest_edge": 9}, crop_size={"height": 16, "width": 13}, resample=2
    )
    yield "SiglipImageProcessor", SiglipImageProcessor(size={"height": 24, "width": 20})
    yield "ViTImageProcessor", ViTImageProcessor(size={"height": 18, "width": 18})
    yield "ViTImageProcessor", ViTImageProcessor(
        size={"height": 33, "width": 17}, resample=1, image_mean=clip[0], image_std=clip[1], rescale_factor=1 / 127.5
    )
    yield "DeiTImageProcessor", DeiTImageProcessor(
        size={"height": 30, "width": 26}, crop_size={"height": 24, "width": 20}
    )
    yield "DeiTImageProcessor", DeiTImageProcessor(
        size={"height": 16, "width": 16}, crop_size={"height": 20, "width": 12}, resample=2
    )
    yield "BlipImageProcessor", BlipImageProcessor(size={"height": 24, "width": 24})
    yield "BitImageProcessor", BitImageProcessor(size={"shortest_edge": 20}, crop_size={"height": 16, "width": 16})
    yield "BeitImageProcessor", BeitImageProcessor(
        size={"height": 20, "width": 22}, crop_size={"height": 16, "width": 18}
    )
    yield "ConvNextImageProcessor", ConvNextImageProcessor(size={"shortest_edge": 15})
    yield "ConvNextImageProcessor", ConvNextImageProcessor(size={"shortest_edge": 21}, crop_pct=0.95, resample=3)
    yield "MobileNetV2ImageProcessor", MobileNetV2ImageProcessor(
        size={"shortest_edge": 20}, crop_size={"height": 14, "width": 14}
    )
    yield "Gemma3ImageProcessor", Gemma3ImageProcessor(size={"height": 28, "width": 28})
    yield "Idefics3ImageProcessor", Idefics3ImageProcessor(
        size={"longest_edge": 40}, max_image_size={"longest_edge": 16}
    )
    yield "SmolVLMImageProcessor", SmolVLMImageProcessor(
        size={"longest_edge": 15}, max_image_size={"longest_edge": 16}, resample=3
    )
    yield "Qwen2VLImageProcessor", Qwen2VLImageProcessor(
        patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=16 * 16, max_pixels=40 * 40
    )


def main():
    lossless, cases = [], []
    for name, data in files():
        image = decoded(data)
        case = {"name": name, "file": data.hex(), "size": image.size, "pixels": image.tobytes().hex()}
        cases.append(case)
        if "lossy" not in name and "orientation" not in name:
            lossless.append((name, image))
    results = []
    for kind, processor in processors():
        config = {key: value for key, value in processor.to_dict().items() if value is not None}
        outputs = []
        for name, image in lossless:
            try:
                result = processor(image, return_tensors="np", input_data_format="channels_last")
            except ValueError as error:
                outputs.append({"name": name, "error": str(error)})
                continue
            outputs.append({"name": name, **{key: shown(value) for key, value in result.items()}})
        results.append({"kind": kind, "config": config, "outputs": outputs})
    document = {"files": cases, "resizes": resizes(), "processors": results}
    path = pathlib.Path(__file__).with_name("images.json")
    path.write_text(json.dumps(document, indent=None, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


main()
