#!/usr/bin/env python3
"""Turn a Llama-architecture GGUF file into a two-component oxpipe package.

    python gguf_to_package.py MODEL.gguf PACKAGE_DIR

The weights are dequantised to float32 and the model is cut in two, so that the
package is a real pipeline:

    embedding.onnx   input_ids                                  -> inputs_embeds
    decoder.onnx     inputs_embeds, attention_mask,
                     position_ids, past_key_values.N.{key,value} -> logits,
                                                                   present.N.{key,value}

Both graphs use standard ONNX operators only (opset 23) and keep their weights in
`<name>.onnx.data` beside them. The folder also gets inference_metadata.yaml,
tokenizer.json and tokenizer_config.json (with the chat template).

Handled: architecture `llama` with full rotary embedding, no biases, tokenizer model
`gpt2` (byte-level BPE) with pre-tokenizer `smollm`. Anything else is refused.
"""

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 23  # the first with RMSNormalization, RotaryEmbedding and Attention
IR_VERSION = 10
# Large enough for any page size that mmap may ask an offset to be a multiple of.
ALIGNMENT = 4096
DEFAULT_MAX_TOKENS = 2048


class UnsupportedModel(Exception):
    pass


class Gguf:
    """Typed access to one GGUF file: hyperparameters, tokenizer, float32 weights."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise UnsupportedModel(f"architecture {architecture!r}; only 'llama' is handled")
        if self.field("llama.rope.scaling.type", None) not in (None, "none"):
            raise UnsupportedModel("scaled rotary embeddings are not handled")
        if "rope_freqs.weight" in self.tensors:
            raise UnsupportedModel("per-frequency rotary factors are not handled")
        self.layers = self.field("llama.block_count")
        self.hidden = self.field("llama.embedding_length")
        self.heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv", self.heads)
        self.head_size = self.hidden // self.heads
        self.context = self.field("llama.context_length")
        self.epsilon = self.field("llama.attention.layer_norm_rms_epsilon")
        self.rope_base = self.field("llama.rope.freq_base", 10000.0)
        if self.field("llama.rope.dimension_count", self.head_size) != self.head_size:
            raise UnsupportedModel("partial rotary embedding is not handled")
        # A file without its own output matrix ties it to the embedding table.
        self.tied = "output.weight" not in self.tensors
        for name in self.tensors:
            if name.endswith(".bias"):
                raise UnsupportedModel(f"tensor {name!r}: biases are not handled")

    def field(self, key, *default):
        found = self.reader.get_field(key)
        if found is not None:
            return found.contents()
        if default:
            return default[0]
        raise UnsupportedModel(f"the file has no field {key!r}")

    def weight(self, name):
        """The tensor as float32, in the row-major shape that its owner trained."""
        if name not in self.tensors:
            raise UnsupportedModel(f"the file has no tensor {name!r}")
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # GGUF lists the fastest dimension first.
        return values.astype(np.float32, copy=False).reshape(tensor.shape[::-1])

    def projection(self, name):
        """A linear layer as MatMul's right operand, [in, out]: no Transpose at run time."""
        return self.weight(name).T

    def rotary_projection(self, name, heads):
        """A query or key projection, [in, out], with the rotary pairs half a head apart.

        GGUF stores each head's rows so that a rotary pair is adjacent (the interleaved
        form); the models' published form pairs row i with row i + head_size / 2.
        """
        rows = self.weight(name)
        out_features, in_features = rows.shape
        pairs = rows.reshape(heads, out_features // heads // 2, 2, in_features)
        return pairs.swapaxes(1, 2).reshape(out_features, in_features).T


class GraphWriter:
    """Collects nodes, and streams initialisers into the external data file."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = folder
        self.nodes = []
        self.initialisers = []
        self.data_name = f"{name}.onnx.data"
        self.data = open(folder / self.data_name, "wb")

    def initialiser(self, name, array):
        array = np.ascontiguousarray(array)
        offset = -(-self.data.tell() // ALIGNMENT) * ALIGNMENT
        self.data.write(bytes(offset - self.data.tell()))
        self.data.write(array.tobytes())
        tensor = TensorProto(
            name=name,
            dims=array.shape,
            data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
            data_location=TensorProto.EXTERNAL,
        )
        entries = {"location": self.data_name, "offset": offset, "length": array.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initialisers.append(tensor)
        return name

    def small_initialiser(self, name, array):
        """One that shape inference reads, and so stays in the graph file."""
        self.initialisers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, op_type, inputs, outputs, **attributes):
        """Adds a node named after its first output, which it returns."""
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], **attributes))
        return outputs[0]

    def write(self, inputs, outputs, opsets):
        """The graph file; `opsets` are versions by domain."""
        self.data.close()
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.initialisers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()],
            ir_version=IR_VERSION,
            producer_name="oxpipe gguf_to_package",
        )
        path = self.folder / f"{self.name}.onnx"
        onnx.save(model, path)
        return path

    def save(self, inputs, outputs):
        """Writes a graph of standard operators, and has it checked."""
        path = self.write(inputs, outputs, {"": OPSET})
        onnx.checker.check_model(path, full_check=True)


def value(name, element_type, *shape):
    return helper.make_tensor_value_info(name, element_type, shape)


def caches(model, prefix, length):
    """The ports of all layers' keys and values."""
    shape = ("batch", model.kv_heads, length, model.head_size)
    return [
        value(f"{prefix}.{i}.{part}", TensorProto.FLOAT, *shape)
        for i in range(model.layers)
        for part in ("key", "value")
    ]


def write_embedding(model, folder):
    graph = GraphWriter("embedding", folder)
    table = graph.initialiser("model.embed_tokens.weight", model.weight("token_embd.weight"))
    graph.node("Gather", [table, "input_ids"], ["inputs_embeds"], axis=0)
    graph.save(
        [value("input_ids", TensorProto.INT64, "batch", "sequence")],
        [value("inputs_embeds", TensorProto.FLOAT, "batch", "sequence", model.hidden)],
    )


def rotary_caches(model):
    """cos and sin of position * base^(-2i / head_size), [context, head_size / 2].

    RoFormer, https://arxiv.org/abs/2104.09864, equation 15.
    """
    exponents = np.arange(0, model.head_size, 2, dtype=np.float64) / model.head_size
    angles = np.outer(np.arange(model.context), model.rope_base**-exponents)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def write_decoder(model, folder):
    graph = GraphWriter("decoder", folder)
    cos, sin = rotary_caches(model)
    cos = graph.initialiser("rotary.cos", cos)
    sin = graph.initialiser("rotary.sin", sin)

    # [batch, total] ones and zeros -> [batch, 1, sequence, total] booleans. The mask could
    # broadcast over the queries, but ONNX Runtime wants that dimension spelled out.
    axes = graph.small_initialiser("mask.axes", np.array([1, 2], np.int64))
    keep = graph.node("Cast", ["attention_mask"], ["mask.keep"], to=TensorProto.BOOL)
    keep = graph.node("Unsqueeze", [keep, axes], ["mask.keep4d"])
    queries = graph.node("Shape", ["inputs_embeds"], ["mask.queries"], start=1, end=2)
    keys = graph.node("Shape", ["attention_mask"], ["mask.keys"], start=1, end=2)
    shape = graph.node("Concat", [queries, keys], ["mask.shape"], axis=0)
    mask = graph.node("Expand", [keep, shape], ["mask"])

    def norm(source, prefix, tensor):
        scale = graph.initialiser(f"{prefix}.weight", model.weight(tensor))
        return graph.node(
            "RMSNormalization", [source, scale], [f"{prefix}.out"], axis=-1, epsilon=model.epsilon
        )

    def linear(source, prefix, weight):
        weight = graph.initialiser(f"{prefix}.weight", weight)
        return graph.node("MatMul", [source, weight], [f"{prefix}.out"])

    def rotate(source, prefix, heads):
        inputs = [source, cos, sin, "position_ids"]
        return graph.node("RotaryEmbedding", inputs, [f"{prefix}.rotated"], num_heads=heads)

    hidden = "inputs_embeds"
    for i in range(model.layers):
        block, layer = f"blk.{i}", f"model.layers.{i}"

        attn = f"{layer}.self_attn"
        normed = norm(hidden, f"{layer}.input_layernorm", f"{block}.attn_norm.weight")
        query = linear(
            normed, f"{attn}.q_proj", model.rotary_projection(f"{block}.attn_q.weight", model.heads)
        )
        key = linear(
            normed, f"{attn}.k_proj", model.rotary_projection(f"{block}.attn_k.weight", model.kv_heads)
        )
        val = linear(normed, f"{attn}.v_proj", model.projection(f"{block}.attn_v.weight"))
        query = rotate(query, f"{attn}.q_proj", model.heads)
        key = rotate(key, f"{attn}.k_proj", model.kv_heads)
        attended = graph.node(
            "Attention",
            [query, key, val, mask, f"past_key_values.{i}.key", f"past_key_values.{i}.value"],
            [f"{attn}.out", f"present.{i}.key", f"present.{i}.value"],
            is_causal=1,
            q_num_heads=model.heads,
            kv_num_heads=model.kv_heads,
        )
        projected = linear(attended, f"{attn}.o_proj", model.projection(f"{block}.attn_output.weight"))
        hidden = graph.node("Add", [hidden, projected], [f"{attn}.residual"])

        mlp = f"{layer}.mlp"
        normed = norm(hidden, f"{layer}.post_attention_layernorm", f"{block}.ffn_norm.weight")
        gate = linear(normed, f"{mlp}.gate_proj", model.projection(f"{block}.ffn_gate.weight"))
        up = linear(normed, f"{mlp}.up_proj", model.projection(f"{block}.ffn_up.weight"))
        # SiLU(gate) = gate * sigmoid(gate)
        sigmoid = graph.node("Sigmoid", [gate], [f"{mlp}.sigmoid"])
        silu = graph.node("Mul", [gate, sigmoid], [f"{mlp}.silu"])
        gated = graph.node("Mul", [silu, up], [f"{mlp}.gated"])
        down = linear(gated, f"{mlp}.down_proj", model.projection(f"{block}.ffn_down.weight"))
        hidden = graph.node("Add", [hidden, down], [f"{mlp}.residual"])

    normed = norm(hidden, "model.norm", "output_norm.weight")
    head_weight = model.projection("token_embd.weight" if model.tied else "output.weight")
    vocabulary = head_weight.shape[1]
    graph.initialiser("lm_head.weight", head_weight)
    graph.node("MatMul", [normed, "lm_head.weight"], ["logits"])

    graph.save(
        [
            value("inputs_embeds", TensorProto.FLOAT, "batch", "sequence", model.hidden),
            value("attention_mask", TensorProto.INT64, "batch", "total_sequence"),
            value("position_ids", TensorProto.INT64, "batch", "sequence"),
            *caches(model, "past_key_values", "past_sequence"),
        ],
        [
            value("logits", TensorProto.FLOAT, "batch", "sequence", vocabulary),
            *caches(model, "present", "total_sequence"),
        ],
    )


def write_tokenizer(model, folder):
    """tokenizer.json and tokenizer_config.json, in the format of Hugging Face tokenizers."""
    kind = (model.field("tokenizer.ggml.model"), model.field("tokenizer.ggml.pre", "default"))
    if kind != ("gpt2", "smollm"):
        raise UnsupportedModel(f"tokenizer {kind[0]!r} with pre-tokenizer {kind[1]!r}")
    tokens = model.field("tokenizer.ggml.tokens")
    types = model.field("tokenizer.ggml.token_type")
    special_types = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == gguf.TokenType.CONTROL,
        }
        for index, (token, kind) in enumerate(zip(tokens, types))
        if kind in special_types
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        # SmolLM cuts every digit off on its own, then splits as GPT-2 does.
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [pair.split(" ") for pair in model.field("tokenizer.ggml.merges")],
        },
    }
    write_json(folder / "tokenizer.json", tokenizer)

    def named(key):
        index = model.field(f"tokenizer.ggml.{key}_token_id", None)
        return None if index is None else tokens[index]

    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "GPT2Tokenizer",
            "add_prefix_space": False,
            "add_bos_token": model.field("tokenizer.ggml.add_bos_token", False),
            "bos_token": named("bos"),
            "eos_token": named("eos"),
            "pad_token": named("padding"),
            "unk_token": named("unknown"),
            "clean_up_tokenization_spaces": False,
            "model_max_length": model.context,
            "chat_template": model.field("tokenizer.chat_template"),
        },
    )


def write_json(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_metadata(model, folder):
    def ports(prefix):
        return "\n".join(
            f"          - {prefix}.{i}.{part}" for i in range(model.layers) for part in ("key", "value")
        )

    def token_id(key):
        return model.field(f"tokenizer.ggml.{key}_token_id")

    (folder / "inference_metadata.yaml").write_text(
        f"""\
# Written by gguf_to_package.py from {model.field("general.name")!r} ({model.field("general.license", "licence not stated")}).
schema_version: v1
pipeline:
  models:
    embedding:
      filename: embedding.onnx
      type: embedding
      io:
        token_input: input_ids
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io:
        sequence_source: inputs_embeds
        inputs_embeds_input: inputs_embeds
        attention_mask_input: attention_mask
        position_ids_input: position_ids
        logits_output: logits
        kv_update: append
        kv_inputs:
{ports("past_key_values")}
        kv_outputs:
{ports("present")}
  dataflow:
    - from: embedding.inputs_embeds
      to: decoder.inputs_embeds
      dtype: fp32
  phases:
    embedding:
      run_on: every_step
    decoder:
      run_on: every_step
  strategy:
    kind: autoregressive
    decoder: decoder
    max_tokens: {DEFAULT_MAX_TOKENS}
tokens:
  bos_token_id: {token_id("bos")}
  eos_token_id: [{token_id("eos")}]
  pad_token_id: {token_id("padding")}
generation:
  do_sample: false
  max_length: {model.context}
""",
        encoding="utf-8",
    )


@contextlib.contextmanager
def whole_or_absent(target):
    """A folder beside `target` to write the package into, which takes its place at the end."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def convert(source, target):
    model = Gguf(source)
    with whole_or_absent(target) as folder:
        write_tokenizer(model, folder)
        write_metadata(model, folder)
        write_embedding(model, folder)
        write_decoder(model, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path, help="the GGUF file")
    parser.add_argument("package", type=Path, help="folder to write; replaced if it exists")
    arguments = parser.parse_args()
    try:
        convert(arguments.gguf, arguments.package)
    except (UnsupportedModel, OSError) as error:
        sys.exit(f"{arguments.gguf}: {error}")


if __name__ == "__main__":
    main()
