#!/usr/bin/env python3
"""Turn a Llama-architecture GGUF file into a package of onnxruntime-genai, in float32.

    python gguf_to_genai.py MODEL.gguf PACKAGE_DIR

    model.onnx   input_ids, attention_mask, past_key_values.N.{key,value}
                                                -> logits, present.N.{key,value}

The graph is what onnxruntime-genai's own model builder writes for Llama in float32 on CPU:
query, key and value are one product, GroupQueryAttention rotates them, and normalisations add
the residual. The folder also gets genai_config.json, tokenizer.json and tokenizer_config.json
(with the chat template). The files handled are those of gguf_to_package.py.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto

from gguf_to_package import (
    Gguf,
    GraphWriter,
    UnsupportedModel,
    caches,
    rotary_caches,
    value,
    whole_or_absent,
    write_json,
    write_tokenizer,
)

OPSETS = {"": 22, "com.microsoft": 1}
CONTRIB = "com.microsoft"


def write_model(model, folder):
    """Returns the size of the vocabulary."""
    graph = GraphWriter("model", folder)
    cos, sin = rotary_caches(model)
    cos = graph.initialiser("rotary.cos", cos)
    sin = graph.initialiser("rotary.sin", sin)

    # GroupQueryAttention wants the index of each sequence's last token, and the longest length.
    one = graph.small_initialiser("one", np.array(1, np.int64))
    axis = graph.small_initialiser("axis", np.array([1], np.int64))
    total = graph.node("ReduceSum", ["attention_mask", axis], ["mask.sum"], keepdims=0)
    last = graph.node("Sub", [total, one], ["mask.last"])
    last = graph.node("Cast", [last], ["seqlens_k"], to=TensorProto.INT32)
    size = graph.node("Shape", ["attention_mask"], ["mask.shape"])
    length = graph.node("Gather", [size, one], ["mask.length"], axis=0)
    length = graph.node("Cast", [length], ["total_seq_len"], to=TensorProto.INT32)

    def norm(hidden, added, prefix, tensor):
        """The norm of `hidden + added`, and that sum."""
        scale = graph.initialiser(f"{prefix}.weight", model.weight(tensor))
        if added is None:
            attributes = {"axis": -1, "epsilon": model.epsilon, "stash_type": 1}
            inputs = [hidden, scale]
            return graph.node("SimplifiedLayerNormalization", inputs, [f"{prefix}.out"], **attributes), hidden
        outputs = [f"{prefix}.out", "", "", f"{prefix}.sum"]
        inputs = [hidden, added, scale]
        attributes = {"domain": CONTRIB, "epsilon": model.epsilon}
        return graph.node("SkipSimplifiedLayerNormalization", inputs, outputs, **attributes), outputs[3]

    def linear(source, prefix, weight):
        weight = graph.initialiser(f"{prefix}.weight", weight)
        return graph.node("MatMul", [source, weight], [f"{prefix}.out"])

    head_weight = model.projection("token_embd.weight" if model.tied else "output.weight")
    vocabulary = head_weight.shape[1]
    head = graph.initialiser("lm_head.weight", head_weight)
    if model.tied:
        table = graph.node("Transpose", [head], ["model.embed_tokens.weight"], perm=[1, 0])
    else:
        table = graph.initialiser("model.embed_tokens.weight", model.weight("token_embd.weight"))
    hidden = graph.node("Gather", [table, "input_ids"], ["model.embed_tokens.out"])
    added = None
    for i in range(model.layers):
        block, layer = f"blk.{i}", f"model.layers.{i}"

        attn = f"{layer}.self_attn"
        normed, hidden = norm(hidden, added, f"{layer}.input_layernorm", f"{block}.attn_norm.weight")
        packed = np.concatenate(
            [
                model.rotary_projection(f"{block}.attn_q.weight", model.heads),
                model.rotary_projection(f"{block}.attn_k.weight", model.kv_heads),
                model.projection(f"{block}.attn_v.weight"),
            ],
            axis=1,
        )
        packed = linear(normed, f"{attn}.qkv_proj", packed)
        past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
        present = [f"present.{i}.{part}" for part in ("key", "value")]
        attended = graph.node(
            "GroupQueryAttention",
            [packed, "", "", *past, last, length, cos, sin, "", "", ""],
            [f"{attn}.out", *present],
            domain=CONTRIB,
            num_heads=model.heads,
            kv_num_heads=model.kv_heads,
            scale=model.head_size**-0.5,
            local_window_size=-1,
            softcap=0.0,
            do_rotary=1,
            rotary_interleaved=0,
        )
        added = linear(attended, f"{attn}.o_proj", model.projection(f"{block}.attn_output.weight"))

        mlp = f"{layer}.mlp"
        normed, hidden = norm(
            hidden, added, f"{layer}.post_attention_layernorm", f"{block}.ffn_norm.weight"
        )
        gate = linear(normed, f"{mlp}.gate_proj", model.projection(f"{block}.ffn_gate.weight"))
        up = linear(normed, f"{mlp}.up_proj", model.projection(f"{block}.ffn_up.weight"))
        # SiLU(gate) = gate * sigmoid(gate)
        sigmoid = graph.node("Sigmoid", [gate], [f"{mlp}.sigmoid"])
        silu = graph.node("Mul", [gate, sigmoid], [f"{mlp}.silu"])
        gated = graph.node("Mul", [silu, up], [f"{mlp}.gated"])
        added = linear(gated, f"{mlp}.down_proj", model.projection(f"{block}.ffn_down.weight"))

    normed, _ = norm(hidden, added, "model.norm", "output_norm.weight")
    graph.node("MatMul", [normed, head], ["logits"])

    graph.write(
        [
            value("input_ids", TensorProto.INT64, "batch", "sequence"),
            value("attention_mask", TensorProto.INT64, "batch", "total_sequence"),
            *caches(model, "past_key_values", "past_sequence"),
        ],
        [
            value("logits", TensorProto.FLOAT, "batch", "sequence", vocabulary),
            *caches(model, "present", "total_sequence"),
        ],
        OPSETS,
    )
    return vocabulary


def write_genai_config(model, vocabulary, folder):
    def token_id(key):
        return model.field(f"tokenizer.ggml.{key}_token_id")

    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": model.head_size,
        "hidden_size": model.hidden,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": model.heads,
        "num_hidden_layers": model.layers,
        "num_key_value_heads": model.kv_heads,
    }
    config = {
        "model": {
            "bos_token_id": token_id("bos"),
            "context_length": model.context,
            "decoder": decoder,
            "eos_token_id": token_id("eos"),
            "pad_token_id": token_id("padding"),
            "type": "llama",
            "vocab_size": vocabulary,
        },
        "search": {
            "do_sample": False,
            "early_stopping": True,
            "max_length": model.context,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    }
    write_json(folder / "genai_config.json", config)


def convert(source, target):
    model = Gguf(source)
    with whole_or_absent(target) as folder:
        write_tokenizer(model, folder)
        vocabulary = write_model(model, folder)
        write_genai_config(model, vocabulary, folder)


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
