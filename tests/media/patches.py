"""Writes patches.json: what the image processor of Gemma 4 makes of images of many sizes.

    pip install "transformers==5.24.0" pillow==13.0.0 numpy
    python tests/media/patches.py

The file was made with these versions. Images are those of the pattern that the tests have too; a
result is shown as images.py shows it.
"""

import json
import pathlib

import numpy as np
from PIL import Image
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil


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
    places = np.linspace(0, flat.size - 1, 64).astype(int)
    return {
        "shape": list(array.shape),
        "sum": flat.sum(),
        "absolute": np.abs(flat).sum(),
        "at": places.tolist(),
        "elements": [float(f"{value:.9g}") for value in flat[places]],
    }


def main():
    config = {"patch_size": 2, "max_soft_tokens": 70, "pooling_kernel_size": 3}
    processor = Gemma4ImageProcessorPil(**config)
    cases = []
    for width, height in [(50, 50), (1, 1), (31, 90), (120, 20), (300, 4), (3, 200), (47, 46), (7, 500)]:
        case = {"size": [width, height]}
        try:
            result = processor(pattern(width, height, width), return_tensors="np")
        except ValueError as error:
            cases.append({**case, "error": str(error)})
            continue
        tokens = int(result["num_soft_tokens_per_image"][0])
        cases.append(
            {
                **case,
                "tokens": tokens,
                "pixel_values": shown(result["pixel_values"]),
                "image_position_ids": shown(result["image_position_ids"]),
            }
        )
    document = {"config": {"image_processor_type": "Gemma4ImageProcessorPil", **config}, "cases": cases}
    path = pathlib.Path(__file__).with_name("patches.json")
    path.write_text(json.dumps(document, separators=(",", ":")).replace('},{"size', '},\n{"size') + "\n")


main()
