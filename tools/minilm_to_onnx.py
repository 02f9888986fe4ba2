#!/usr/bin/env python3
"""Turn a BERT encoder's safetensors weights into one ONNX graph.

    python minilm_to_onnx.py MODEL_DIR OUTPUT.onnx

MODEL_DIR holds config.json and model.safetensors as Hugging Face's transformers writes them.
The graph takes input_ids, attention_mask and token_type_ids (int64 [batch, sequence]) and gives
last_hidden_state (float32 [batch, sequence, hidden]). Operators are those of an exporter that
leaves attention unfused: MatMul, Transpose, Softmax, LayerNormalization, Gelu from Erf.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8


def read_safetensors(path):
    """The float32 tensors of a file: a length, a JSON header, then the bytes."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[start:end], np.float32).reshape(entry["shape"])
    return tensors


class Builder:
    def __init__(self, weights, config):
        self.weights = weights
        self.hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.epsilon = config["layer_norm_eps"]
        self.nodes = []
        self.initializers = []
        self.constants = set()

    def node(self, op_type, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def constant(self, name, value):
        if name not in self.constants:
            self.constants.add(name)
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def linear(self, x, layer, output):
        # A Linear layer keeps its matrix as [out, in].
        weight = self.constant(f"{layer}.weight.T", self.weights[f"{layer}.weight"].T)
        bias = self.constant(f"{layer}.bias", self.weights[f"{layer}.bias"])
        product = self.node("MatMul", [x, weight], f"{output}.product")
        return self.node("Add", [product, bias], output)

    def norm(self, x, layer, output):
        scale = self.constant(f"{layer}.weight", self.weights[f"{layer}.weight"])
        bias = self.constant(f"{layer}.bias", self.weights[f"{layer}.bias"])
        return self.node("LayerNormalization", [x, scale, bias], output, axis=-1, epsilon=self.epsilon)

    def scalar(self, name, value):
        return self.constant(name, np.array(value, np.float32))

    def embeddings(self):
        def table(name):
            return self.constant(f"{name}.weight", self.weights[f"embeddings.{name}.weight"])

        words = self.node("Gather", [table("word_embeddings"), "input_ids"], "words")
        types = self.node("Gather", [table("token_type_embeddings"), "token_type_ids"], "types")
        # As an exporter does it: a table of positions, cut to the length of the sequence.
        most = self.weights["embeddings.position_embeddings.weight"].shape[0]
        positions = self.constant("positions", np.arange(most, dtype=np.int64)[None])
        start = self.constant("start", np.array([0], np.int64))
        axis = self.constant("axis", np.array([1], np.int64))
        length = self.node("Shape", ["input_ids"], "length", start=1, end=2)
        positions = self.node("Slice", [positions, start, length, axis], "positions.cut")
        places = self.node("Gather", [table("position_embeddings"), positions], "places")
        total = self.node("Add", [self.node("Add", [words, types], "typed"), places], "placed")
        return self.norm(total, "embeddings.LayerNorm", "embedded")

    def mask(self):
        """0 where a token is, the lowest float where padding is: [batch, 1, 1, sequence]."""
        axes = self.constant("mask_axes", np.array([1, 2], np.int64))
        mask = self.node("Unsqueeze", ["attention_mask", axes], "mask.unsqueezed")
        mask = self.node("Cast", [mask], "mask.float", to=TensorProto.FLOAT)
        mask = self.node("Sub", [self.scalar("one.float", 1), mask], "mask.padding")
        return self.node("Mul", [mask, self.scalar("lowest", np.finfo(np.float32).min)], "mask")

    def attention(self, x, layer, mask):
        size = self.hidden // self.heads
        split = self.constant("split", np.array([0, 0, self.heads, size], np.int64))
        joined = self.constant("joined", np.array([0, 0, self.hidden], np.int64))

        def heads(part, perm):
            y = self.linear(x, f"{layer}.attention.self.{part}", f"{layer}.{part}")
            y = self.node("Reshape", [y, split], f"{layer}.{part}.split")
            return self.node("Transpose", [y], f"{layer}.{part}.heads", perm=perm)

        query = heads("query", [0, 2, 1, 3])
        key = heads("key", [0, 2, 3, 1])
        value = heads("value", [0, 2, 1, 3])
        scores = self.node("MatMul", [query, key], f"{layer}.scores")
        scores = self.node("Div", [scores, self.scalar("root", size**0.5)], f"{layer}.scaled")
        scores = self.node("Add", [scores, mask], f"{layer}.masked")
        weights = self.node("Softmax", [scores], f"{layer}.weights", axis=-1)
        mixed = self.node("MatMul", [weights, value], f"{layer}.mixed")
        mixed = self.node("Transpose", [mixed], f"{layer}.mixed.heads", perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", [mixed, joined], f"{layer}.mixed.joined")
        return self.linear(mixed, f"{layer}.attention.output.dense", f"{layer}.attended")

    def gelu(self, x, output):
        inner = self.node("Div", [x, self.scalar("sqrt2", 2**0.5)], f"{output}.inner")
        inner = self.node("Erf", [inner], f"{output}.erf")
        inner = self.node("Add", [inner, self.scalar("one.float", 1)], f"{output}.shifted")
        inner = self.node("Mul", [x, inner], f"{output}.doubled")
        return self.node("Mul", [inner, self.scalar("half", 0.5)], output)

    def layer(self, x, layer, mask, output):
        attended = self.attention(x, layer, mask)
        attended = self.node("Add", [attended, x], f"{layer}.residual")
        x = self.norm(attended, f"{layer}.attention.output.LayerNorm", f"{layer}.normed")
        inner = self.linear(x, f"{layer}.intermediate.dense", f"{layer}.intermediate")
        inner = self.linear(self.gelu(inner, f"{layer}.gelu"), f"{layer}.output.dense", f"{layer}.outer")
        inner = self.node("Add", [inner, x], f"{layer}.outer.residual")
        return self.norm(inner, f"{layer}.output.LayerNorm", output)


def convert(folder):
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    for key, expected in [("hidden_act", "gelu"), ("position_embedding_type", "absolute")]:
        if config[key] != expected:
            raise SystemExit(f"config.json: {key} is {config[key]!r}, only {expected!r} is handled")
    builder = Builder(read_safetensors(folder / "model.safetensors"), config)
    x = builder.embeddings()
    mask = builder.mask()
    layers = config["num_hidden_layers"]
    for index in range(layers):
        output = "last_hidden_state" if index == layers - 1 else f"hidden.{index}"
        x = builder.layer(x, f"encoder.layer.{index}", mask, output)
    dims = ["batch", "sequence"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, dims)
        for name in ["input_ids", "attention_mask", "token_type_ids"]
    ]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*dims, builder.hidden])]
    graph = helper.make_graph(builder.nodes, "bert", inputs, outputs, builder.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    onnx.save(convert(sys.argv[1]), sys.argv[2])
