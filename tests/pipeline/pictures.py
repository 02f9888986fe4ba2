"""Writes pictures.json: positions on three axes as transformers' Qwen2VLModel has them.

    pip install "transformers==4.57.6" numpy
    python tests/pipeline/pictures.py

The file was made with this version. `get_rope_index` is taken out of transformers' source and run
over numpy, of which a few functions go by torch's names here: torch is large, and nothing that is
done with these integers depends on it.
"""

import ast
import importlib.util
import json
import pathlib
import types

import numpy as np


class Tensor:
    device = None

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __getitem__(self, at):
        return Tensor(self.values[plain(at)])

    def __setitem__(self, at, values):
        self.values[plain(at)] = plain(values)

    def __iter__(self):
        return map(Tensor, self.values)

    def __len__(self):
        return len(self.values)

    def __eq__(self, other):
        return Tensor(self.values == plain(other))

    def __add__(self, other):
        return Tensor(self.values + plain(other))

    def __sub__(self, other):
        return Tensor(self.values - plain(other))

    def __index__(self):
        return int(self.values)

    def sum(self):
        return int(self.values.sum())

    def max(self):
        return int(self.values.max())

    def item(self):
        return self.values.item()

    def tolist(self):
        return self.values.tolist()

    def to(self, _):
        return self

    def view(self, *shape):
        return Tensor(self.values.reshape(shape))

    reshape = view

    def expand(self, *shape):
        sides = [own if side == -1 else side for own, side in zip(self.shape, shape)]
        return Tensor(np.broadcast_to(self.values, sides))

    def flatten(self):
        return Tensor(self.values.ravel())

    def squeeze(self, axis):
        return Tensor(self.values.squeeze(axis))

    def unsqueeze(self, axis):
        return Tensor(np.expand_dims(self.values, axis))


def plain(value):
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.values if isinstance(value, Tensor) else value


torch = types.SimpleNamespace(
    LongTensor=Tensor,
    Tensor=Tensor,
    ones=lambda *shape, **_: Tensor(np.ones(shape, np.int64)),
    ones_like=lambda like: Tensor(np.ones_like(like.values)),
    argwhere=lambda mask: Tensor(np.argwhere(mask.values)),
    arange=lambda count: Tensor(np.arange(count)),
    stack=lambda parts: Tensor(np.stack([part.values for part in parts])),
    cat=lambda parts, dim: Tensor(np.concatenate([part.values for part in parts], dim)),
    tensor=lambda values, **_: Tensor([plain(value) for value in values]),
)

IMAGE, VIDEO, START, TEXT, MERGE = 7, 8, 9, 1, 2


def get_rope_index():
    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent
    source = (folder / "models/qwen2_vl/modeling_qwen2_vl.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    function = next(node for node in functions if node.name == "get_rope_index")
    function.decorator_list = []
    scope = {"torch": torch, "Optional": __import__("typing").Optional}
    exec(compile(ast.Module([function], []), "modeling_qwen2_vl.py", "exec"), scope)
    return scope["get_rope_index"]


def main():
    vision = types.SimpleNamespace(spatial_merge_size=MERGE)
    config = types.SimpleNamespace(
        vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START
    )
    index = get_rope_index()
    cases = []
    # Tokens of text, and grids of merged patches: frames, rows and columns.
    for layout in [
        [3, [1, 2, 3], 4],
        [1, [1, 5, 2], 0, [1, 1, 1], 2],
        [2, [1, 1, 9], 1, [1, 3, 3], 6, [1, 4, 2], 3],
        [5, [1, 12, 1], 2],
        [1, [3, 2, 2], 2, [1, 2, 2], 1],
    ]:
        tokens, grids, pictures = [], [], []
        for part in layout:
            if isinstance(part, int):
                tokens += [TEXT] * part
                continue
            tokens.append(START)
            pictures.append({"start": len(tokens), "grid": part})
            frames, rows, columns = part
            tokens += [IMAGE] * (frames * rows * columns)
            grids.append([frames, rows * MERGE, columns * MERGE])
        model = types.SimpleNamespace(config=config)
        positions, _ = index(model, Tensor([tokens]), Tensor(grids), None, None)
        cases.append({"pictures": pictures, "positions": positions.values[:, 0].tolist()})
    path = pathlib.Path(__file__).with_name("pictures.json")
    path.write_text(json.dumps(cases, separators=(",", ":")).replace('},{"pictures', '},\n{"pictures') + "\n")


main()
