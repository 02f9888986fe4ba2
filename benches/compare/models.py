"""The random-weight models that every engine of the comparison runs.

One shape, in each format that some engine reads:

    NAME-FORMAT/     model.onnx, model.onnx.data, genai_config.json (onnxruntime-genai) and
                     inference_metadata.yaml (oxpipe); formats f32, f16, bf16, int8, int4
    NAME-FORMAT.gguf llama.cpp; f32, f16, bf16 (q8_0 and q4_0 are made from f32 by
                     llama.cpp's own quantiser)

The graph is what onnxruntime-genai's model builder writes for Qwen2 on CPU: packed Q/K/V with
a bias, GroupQueryAttention with rotary embedding inside, SkipSimplifiedLayerNormalization, and
MatMulNBits of block 32 in the quantised formats. Weights are drawn from a fixed seed: speed
does not depend on them, and nothing has to be downloaded.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

FORMATS = ("f32", "f16", "bf16", "int8", "int4")
BLOCK = 32
EPSILON = 1e-6
ALIGNMENT = 4096


@dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    rope_base: float
    context: int

    @property
    def head_size(self):
        return self.hidden // self.heads

    @property
    def kv_size(self):
        return self.kv_heads * self.head_size


# Qwen2.5-0.5B, and a model so small that only the cost of a step remains.
MEDIUM = Shape("qwen05", 24, 896, 14, 2, 4864, 151936, 1e6, 32768)
TOY = Shape("toy", 2, 64, 4, 2, 128, 512, 1e4, 2048)
SHAPES = {shape.name: shape for shape in (MEDIUM, TOY)}


class Weights:
    """Named random tensors: the same name gives the same numbers in every format."""

    def __init__(self, shape):
        self.shape = shape

    def draw(self, name, *dims, scale=0.02):
        seed = np.frombuffer(f"{self.shape.name}/{name}".encode(), np.uint8).tolist()
        return np.random.default_rng(seed).standard_normal(dims, np.float32) * np.float32(scale)

    def norm(self, name):
        return 1 + self.draw(name, self.shape.hidden, scale=0.1)

    def layer(self, index):
        """The matrices of a layer as [out, in], and the biases of its projections."""
        shape, at = self.shape, f"layers.{index}"
        q, kv, hidden, ffn = shape.hidden, shape.kv_size, shape.hidden, shape.ffn
        dims = {
            "q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, q),
            "gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn),
        }  # fmt: skip
        matrices = {part: self.draw(f"{at}.{part}", *size) for part, size in dims.items()}
        biases = {part: self.draw(f"{at}.{part}.bias", dims[part][0]) for part in "qkv"}
        return matrices, biases

    def embedding(self):
        return self.draw("embedding", self.shape.vocabulary, self.shape.hidden)


def quantise(rows, bits):
    """MatMulNBits' layout of [out, in]: values [out, blocks, bytes], scales [out, blocks]."""
    out, depth = rows.shape
    blocks = rows.reshape(out, depth // BLOCK, BLOCK)
    half = 1 << (bits - 1)
    scales = np.abs(blocks).max(2) / (half - 1)
    values = np.rint(blocks / scales[..., None]).astype(np.int16) + half
    values = values.astype(np.uint8)
    if bits == 4:
        values = values[..., 0::2] | values[..., 1::2] << 4
    return values, scales.astype(np.float32)


class Graph:
    """Nodes, and initialisers that are written to the data file as they come."""

    def __init__(self, folder, fmt):
        self.folder, self.bits = folder, {"int8": 8, "int4": 4}.get(fmt)
        self.dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}.get(fmt, np.float32)
        self.type = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}.get(fmt, TensorProto.FLOAT)
        self.nodes, self.initialisers = [], []
        folder.mkdir(parents=True, exist_ok=True)
        self.data = open(folder / "model.onnx.data", "wb")

    def initialiser(self, name, array, dtype=None):
        array = np.ascontiguousarray(array, dtype=dtype)
        offset = -(-self.data.tell() // ALIGNMENT) * ALIGNMENT
        self.data.write(bytes(offset - self.data.tell()))
        self.data.write(array.tobytes())
        kind = TensorProto.BFLOAT16 if array.dtype == ml_dtypes.bfloat16 else None
        tensor = TensorProto(
            name=name,
            dims=array.shape,
            data_type=kind or helper.np_dtype_to_tensor_dtype(array.dtype),
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (("location", "model.onnx.data"), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.initialisers.append(tensor)
        return name

    def floats(self, name, array):
        return self.initialiser(name, array.astype(self.dtype))

    def integers(self, name, values):
        array = np.array(values, np.int64)
        self.initialisers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, op, inputs, *outputs, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def contrib(self, op, inputs, *outputs, **attributes):
        return self.node(op, inputs, *outputs, domain="com.microsoft", **attributes)

    def linear(self, source, name, rows):
        """A product with the transpose of `rows`, [out, in]."""
        out, depth = rows.shape
        if not self.bits:
            return self.node("MatMul", [source, self.floats(f"{name}.weight", rows.T)], f"{name}.out")
        values, scales = quantise(rows, self.bits)
        inputs = [source, self.initialiser(f"{name}.quantised", values), self.floats(f"{name}.scales", scales)]
        return self.contrib(
            "MatMulNBits", inputs, f"{name}.out",
            K=depth, N=out, bits=self.bits, block_size=BLOCK, accuracy_level=4,
        )  # fmt: skip


def write_onnx(shape, fmt, folder, last_only):
    """`last_only`: logits of the last position alone, as the builder's prune_lm_head does."""
    graph, weights = Graph(folder, fmt), Weights(shape)
    cos, sin = rotary_caches(shape)
    cos, sin = graph.floats("rotary.cos", cos), graph.floats("rotary.sin", sin)

    one = graph.integers("one", 1)
    axis = graph.integers("axis", [1])
    total = graph.node("ReduceSum", ["attention_mask", axis], "mask.sum", keepdims=0)
    last = graph.node("Sub", [total, one], "mask.last")
    lengths = graph.node("Cast", [last], "seqlens_k", to=TensorProto.INT32)
    size = graph.node("Shape", ["attention_mask"], "mask.shape")
    length = graph.node("Gather", [size, one], "mask.length", axis=0)
    length = graph.node("Cast", [length], "total_seq_len", to=TensorProto.INT32)

    table = weights.embedding()
    if graph.bits:
        values, scales = quantise(table, graph.bits)
        values = graph.initialiser("embedding.quantised", values.reshape(shape.vocabulary, -1))
        inputs = [values, "input_ids", graph.floats("embedding.scales", scales)]
        hidden = graph.contrib(
            "GatherBlockQuantized", inputs, "embedding.out",
            bits=graph.bits, block_size=BLOCK, gather_axis=0, quantize_axis=1,
        )  # fmt: skip
    else:
        hidden = graph.node("Gather", [graph.floats("embedding.weight", table), "input_ids"], "embedding.out")
    skip = None

    def norm(name):
        nonlocal skip, hidden
        weight = graph.floats(f"{name}.weight", weights.norm(name))
        if skip is None:
            return graph.node(
                "SimplifiedLayerNormalization", [hidden, weight], f"{name}.out", axis=-1, epsilon=EPSILON
            )
        out, total = f"{name}.out", f"{name}.sum"
        inputs = [hidden, skip, weight]
        graph.contrib("SkipSimplifiedLayerNormalization", inputs, out, "", "", total, epsilon=EPSILON)
        hidden = total
        return out

    for index in range(shape.layers):
        at = f"layers.{index}"
        matrices, biases = weights.layer(index)
        normed = norm(f"{at}.attention_norm")
        packed = graph.linear(normed, f"{at}.qkv", np.concatenate([matrices[part] for part in "qkv"]))
        bias = graph.floats(f"{at}.qkv.bias", np.concatenate([biases[part] for part in "qkv"]))
        packed = graph.node("Add", [packed, bias], f"{at}.qkv.biased")
        past = [f"past_key_values.{index}.{part}" for part in ("key", "value")]
        present = [f"present.{index}.{part}" for part in ("key", "value")]
        attended = graph.contrib(
            "GroupQueryAttention",
            [packed, "", "", *past, lengths, length, cos, sin], f"{at}.attention", *present,
            num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1,
            scale=shape.head_size**-0.5, local_window_size=-1,
        )  # fmt: skip
        skip = graph.linear(attended, f"{at}.o", matrices["o"])
        normed = norm(f"{at}.ffn_norm")
        gate = graph.linear(normed, f"{at}.gate", matrices["gate"])
        up = graph.linear(normed, f"{at}.up", matrices["up"])
        sigmoid = graph.node("Sigmoid", [gate], f"{at}.sigmoid")
        gate = graph.node("Mul", [gate, sigmoid], f"{at}.silu")
        gated = graph.node("Mul", [gate, up], f"{at}.gated")
        skip = graph.linear(gated, f"{at}.down", matrices["down"])
    normed = norm("final_norm")
    if last_only:
        at = graph.integers("last", [-1])
        normed = graph.node("Gather", [normed, at], "last.hidden", axis=1)
    graph.linear(normed, "lm_head", table)
    graph.nodes[-1].output[0] = "logits"
    graph.data.close()

    def value(name, kind, *dims):
        return helper.make_tensor_value_info(name, kind, dims)

    def cache(prefix, length):
        dims = ("batch", shape.kv_heads, length, shape.head_size)
        names = [f"{prefix}.{i}.{part}" for i in range(shape.layers) for part in ("key", "value")]
        return [value(name, graph.type, *dims) for name in names]

    inputs = [
        value("input_ids", TensorProto.INT64, "batch", "sequence"),
        value("attention_mask", TensorProto.INT64, "batch", "total_sequence"),
        *cache("past_key_values", "past_sequence"),
    ]
    positions = 1 if last_only else "sequence"
    outputs = [
        value("logits", graph.type, "batch", positions, shape.vocabulary),
        *cache("present", "total_sequence"),
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, shape.name, inputs, outputs, graph.initialisers),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
        producer_name="oxpipe benches/compare",
    )
    onnx.save(model, folder / "model.onnx")
    write_genai_config(shape, folder)
    write_metadata(shape, folder)


def rotary_caches(shape):
    exponents = np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size
    angles = np.outer(np.arange(shape.context), shape.rope_base**-exponents)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def write_genai_config(shape, folder):
    names = {
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
    }
    decoder = {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": shape.head_size,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        **names,
    }
    end = shape.vocabulary - 1
    config = {
        "model": {
            "type": "qwen2",
            "context_length": shape.context,
            "vocab_size": shape.vocabulary,
            "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
            "decoder": decoder,
        },
        "search": {"past_present_share_buffer": True, "max_length": shape.context, "do_sample": False},
    }  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps(config, indent=1))


def write_metadata(shape, folder):
    def ports(prefix):
        return [f"{prefix}.{i}.{part}" for i in range(shape.layers) for part in ("key", "value")]

    io = {
        "sequence_source": "token_ids",
        "token_input": "input_ids",
        "attention_mask_input": "attention_mask",
        "logits_output": "logits",
        "kv_update": "append",
        "kv_inputs": ports("past_key_values"),
        "kv_outputs": ports("present"),
    }
    models = {"decoder": {"filename": "model.onnx", "type": "decoder", "io": io}}
    strategy = {"kind": "autoregressive", "decoder": "decoder", "max_tokens": shape.context}
    package = {
        "schema_version": "v1",
        "pipeline": {"models": models, "strategy": strategy},
        "tokens": {"eos_token_id": [shape.vocabulary - 1]},
    }
    (folder / "inference_metadata.json").write_text(json.dumps(package, indent=1))


def write_gguf(shape, fmt, path):
    import gguf

    kinds = {
        "f32": (gguf.LlamaFileType.ALL_F32, gguf.GGMLQuantizationType.F32),
        "f16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
        "bf16": (gguf.LlamaFileType.MOSTLY_BF16, gguf.GGMLQuantizationType.BF16),
    }
    file_type, kind = kinds[fmt]
    weights = Weights(shape)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(file_type)
    end = shape.vocabulary - 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(shape.vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * end + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t 1"])
    writer.add_eos_token_id(end)
    writer.add_bos_token_id(end)
    writer.add_add_bos_token(False)

    def matrix(name, values):
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    matrix("token_embd.weight", weights.embedding())
    writer.add_tensor("output_norm.weight", weights.norm("final_norm"))
    parts = {
        "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
        "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
    }  # fmt: skip
    for index in range(shape.layers):
        at, block = f"layers.{index}", f"blk.{index}"
        matrices, biases = weights.layer(index)
        for part, name in parts.items():
            matrix(f"{block}.{name}.weight", matrices[part])
        for part, bias in biases.items():
            writer.add_tensor(f"{block}.{parts[part]}.bias", bias)
        writer.add_tensor(f"{block}.attn_norm.weight", weights.norm(f"{at}.attention_norm"))
        writer.add_tensor(f"{block}.ffn_norm.weight", weights.norm(f"{at}.ffn_norm"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise_gguf(source, path, fmt):
    import ctypes

    import llama_cpp

    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    def silent(_level, _text, _data):
        pass

    llama_cpp.llama_log_set(silent, None)
    options = llama_cpp.llama_model_quantize_default_params()
    kinds = {"int8": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "int4": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}
    options.ftype, options.pure = kinds[fmt], True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(options)):
        raise RuntimeError(f"llama.cpp could not quantise {source}")
    llama_cpp.llama_log_set(ctypes.cast(None, type(silent)), None)


def once(path, make):
    """Makes a file or folder under another name first, so that half of one is never used."""
    if not path.exists():
        print(f"making {path.name}", flush=True)
        part = path.with_name(f"part-{path.name}")
        make(part)
        part.rename(path)
    return path


def onnx_package(folder, shape, fmt, last_only=False):
    suffix = "-last" if last_only else ""
    make = lambda part: write_onnx(shape, fmt, part, last_only)  # noqa: E731
    return once(Path(folder) / f"{shape.name}-{fmt}{suffix}", make)


def gguf_file(folder, shape, fmt):
    folder = Path(folder)
    if fmt in ("int8", "int4"):
        source = gguf_file(folder, shape, "f32")
        return once(folder / f"{shape.name}-{fmt}.gguf", lambda part: quantise_gguf(source, part, fmt))
    return once(folder / f"{shape.name}-{fmt}.gguf", lambda part: write_gguf(shape, fmt, part))
