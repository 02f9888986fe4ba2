"""Writes tiles.json: grids and sizes that transformers chooses for images of many sizes.

    pip install "transformers==4.57.6" pillow==13.0.0 numpy
    python tests/media/tiles.py

The file was made with these versions. `dynamic_preprocess` of Phi-4-multimodal is taken out of
transformers' source, with the few functions of torch and torchvision that it calls replaced by ones
that note sizes: nothing else of these is in the result.
"""

import ast
import importlib.util
import json
import math
import pathlib
import types

import numpy as np
from transformers.image_processing_utils import select_best_resolution

SIZES = [
    (1, 1), (28, 28), (29, 28), (28, 29), (56, 56), (57, 85), (100, 40), (40, 100), (200, 60), (60, 200),
    (113, 112), (300, 100), (17, 230), (231, 19), (84, 84), (140, 30), (30, 141), (90, 61), (61, 91), (250, 249),
]
GRIDS = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2)]
TILE, PATCH = 28, 7


def dynamic_preprocess():
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent
    source = (folder / "models/phi4_multimodal/image_processing_phi4_multimodal_fast.py").read_text()
    wanted = ("find_closest_aspect_ratio", "dynamic_preprocess")
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    noted = {}
    scope = {
        "math": math,
        "torch": types.SimpleNamespace(ones=np.ones),
        "F": types.SimpleNamespace(
            resize=lambda image, size: noted.update(size=size[::-1]), pad=lambda image, sides, fill: None
        ),
    }
    exec(compile(ast.Module(functions, []), "phi4_multimodal", "exec"), scope)
    processor = types.SimpleNamespace(
        find_closest_aspect_ratio=lambda *args: scope["find_closest_aspect_ratio"](None, *args)
    )

    def preprocess(width, height, most):
        image = types.SimpleNamespace(shape=(3, height, width))
        _, mask = scope["dynamic_preprocess"](processor, image, TILE, PATCH, TILE // PATCH, most)
        return noted["size"], mask

    return preprocess


def main():
    cases = []
    preprocess = dynamic_preprocess()
    for width, height in SIZES:
        for most in (1, 3, 4, 6):
            if most >= 2:
                resolutions = [
                    (rows * TILE, columns * TILE) for columns, rows in GRIDS if columns * rows <= most
                ]
                high, wide = select_best_resolution((height, width), resolutions)
                cases.append(
                    {"mode": "anyres", "size": [width, height], "most": most, "grid": [high // TILE, wide // TILE]}
                )
            case = {"mode": "hd", "size": [width, height], "most": most}
            try:
                _, mask = preprocess(width, height, most)
            except ValueError:
                cases.append({**case, "error": True})
                continue
            cell = TILE // PATCH
            cases.append({**case, "grid": [side // cell for side in mask.shape], "valid": int(mask.sum())})
    document = {"tile": TILE, "patch": PATCH, "cases": cases}
    path = pathlib.Path(__file__).with_name("tiles.json")
    path.write_text(json.dumps(document, separators=(",", ":")).replace("},{", "},\n{") + "\n")


main()
