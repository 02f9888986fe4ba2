"""Writes extensions.json: what pipelines of onnxruntime-extensions make of images, as the packages of
onnxruntime-genai have them.

    pip install onnxruntime-extensions==0.15.2 pillow==13.0.0 numpy
    python tests/media/extensions.py

The file was made with these versions. Images are those of the pattern that the tests have too; a
result is shown as images.py shows it.
"""

import json
import pathlib
import tempfile

import numpy as np
from onnxruntime_extensions.pp_api import ImageProcessor
from PIL import Image


def pattern(width, height, seed):
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for channel in range(3):
        smooth = 90 * np.sin(x / (3.1 + channel) + seed) + 60 * np.cos(y / (5.7 - channel) - seed)
        noise = (x * 7919 + y * 104729 + seed * 31 + channel * 17) * 2654435761 % 2**32 >> 26
        planes.append(np.clip(128 + smooth + noise - 32, 0, 255))
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


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


def operation(kind, **attributes):
    return {"operation": {"name": kind, "type": kind, **({"attrs": attributes} if attributes else {})}}


# Its resizing is that of an older Pillow, which goes along the rows first. These become lower by no
# more than twice of what they become narrower, so that Pillow 13 does the same.
SIZES = [(54, 36), (70, 50), (1, 1), (133, 40)]
CLIP = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
DECODE = operation("DecodeImage", color_space="RGB")
QWEN = [
    DECODE,
    operation("ConvertRGB"),
    operation(
        "Resize", width=54, height=36, smart_resize=1, min_pixels=256, max_pixels=4096, patch_size=4, merge_size=2
    ),
    operation("Rescale", rescale_factor=0.00392156862745098),
    operation("Normalize", **CLIP, qwen2_5_vl=1),
    operation("PatchImage", patch_size=4, temporal_patch_size=2, merge_size=2),
]
SQUARE = [
    DECODE,
    operation("Resize", width=30, height=20, interpolation="LINEAR"),
    operation("CenterCrop", width=21, height=16),
    operation("Rescale", rescale_factor=0.00392156862745098),
    operation("Normalize", **CLIP),
    operation("Permute3D", dims=[2, 0, 1]),
]


def main():
    cases = []
    for transforms in (QWEN, SQUARE):
        config = {"processor": {"name": "image_processing", "transforms": transforms}}
        processor = ImageProcessor(json.dumps(config))
        outputs = []
        for width, height in SIZES:
            with tempfile.NamedTemporaryFile(suffix=".png") as file:
                pattern(width, height, width).save(file.name)
                result = processor.pre_process(file.name)
            output = {"size": [width, height], "pixel_values": shown(processor.to_numpy(result, 0))}
            if transforms is QWEN:
                output["image_grid_thw"] = shown(processor.to_numpy(result, 1)[0])
            outputs.append(output)
        cases.append({"config": config, "outputs": outputs})
    path = pathlib.Path(__file__).with_name("extensions.json")
    path.write_text(json.dumps(cases, separators=(",", ":")).replace('},{"size', '},\n{"size') + "\n")


main()
