"""Tests of gguf_to_package.py and gguf_to_genai.py on a tiny model made here:

    python -m unittest discover tools
"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import onnx
from onnx import numpy_helper

import gguf_to_genai
import gguf_to_package

HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, VOCABULARY, CONTEXT = 16, 4, 2, 24, 7, 10
HEAD_SIZE = HIDDEN // HEADS


def write_gguf(path, architecture="llama", pre="smollm", extra=(), output=False):
    """A one-layer model with random weights; returns them as trained, [out, in]."""
    random = np.random.default_rng(7)
    shapes = {
        "token_embd": (VOCABULARY, HIDDEN),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN),
        "blk.0.attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.ffn_gate": (FEED_FORWARD, HIDDEN),
        "blk.0.ffn_up": (FEED_FORWARD, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, FEED_FORWARD),
        "output_norm": (HIDDEN,),
    }
    if output:
        shapes["output"] = (VOCABULARY, HIDDEN)
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_context_length(CONTEXT)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<unk>", "<bos>", "<eos>", "a", "b", "ab", "Ġ"])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 4)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    for name in extra:
        writer.add_tensor(name, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


class Conversion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.source = self.folder / "tiny.gguf"
        self.package = self.folder / "package"

    def initialisers(self, component):
        model = onnx.load(self.package / f"{component}.onnx")
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def test_weights_arrive_transposed_and_tied(self):
        trained = write_gguf(self.source)
        gguf_to_package.convert(self.source, self.package)
        decoder = self.initialisers("decoder")
        layer = "model.layers.0"
        pairs = {
            f"{layer}.self_attn.v_proj.weight": trained["blk.0.attn_v"].T,
            f"{layer}.self_attn.o_proj.weight": trained["blk.0.attn_output"].T,
            f"{layer}.mlp.down_proj.weight": trained["blk.0.ffn_down"].T,
            f"{layer}.input_layernorm.weight": trained["blk.0.attn_norm"],
            "lm_head.weight": trained["token_embd"].T,
        }
        for name, expected in pairs.items():
            np.testing.assert_array_equal(decoder[name], expected, err_msg=name)
        table = self.initialisers("embedding")["model.embed_tokens.weight"]
        np.testing.assert_array_equal(table, trained["token_embd"])

    def test_half_rotation_scores_as_the_interleaved_one_of_gguf(self):
        """Attention scores are what the reordering of query and key rows must keep."""
        trained = write_gguf(self.source)
        gguf_to_package.convert(self.source, self.package)
        decoder = self.initialisers("decoder")
        x = np.random.default_rng(8).standard_normal((2, HIDDEN)).astype(np.float32)
        positions = np.array([9, 4])

        def rotated(projected, first, second):
            heads = projected.reshape(2, -1, HEAD_SIZE)
            cos = decoder["rotary.cos"][positions][:, None]
            sin = decoder["rotary.sin"][positions][:, None]
            a, b = heads[..., first], heads[..., second]
            return np.stack([a * cos - b * sin, a * sin + b * cos], -1)

        half = HEAD_SIZE // 2
        for name, gguf_name in (("q_proj", "attn_q"), ("k_proj", "attn_k")):
            interleaved = rotated(x @ trained[f"blk.0.{gguf_name}"].T, np.s_[0::2], np.s_[1::2])
            halves = rotated(
                x @ decoder[f"model.layers.0.self_attn.{name}.weight"], np.s_[:half], np.s_[half:]
            )
            np.testing.assert_allclose(halves, interleaved, rtol=1e-5, atol=1e-6)
        frequencies = 100.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        np.testing.assert_allclose(decoder["rotary.cos"][9], np.cos(9 * frequencies), rtol=1e-6)

    def test_package_is_complete(self):
        write_gguf(self.source)
        gguf_to_package.convert(self.source, self.package)
        names = {path.name for path in self.package.iterdir()}
        self.assertEqual(
            names,
            {
                "decoder.onnx",
                "decoder.onnx.data",
                "embedding.onnx",
                "embedding.onnx.data",
                "inference_metadata.yaml",
                "tokenizer.json",
                "tokenizer_config.json",
            },
        )
        tokenizer = json.loads((self.package / "tokenizer.json").read_text())
        self.assertEqual(tokenizer["model"]["merges"], [["a", "b"]])
        self.assertEqual([token["id"] for token in tokenizer["added_tokens"]], [0, 1, 2])
        config = json.loads((self.package / "tokenizer_config.json").read_text())
        self.assertEqual(config["eos_token"], "<eos>")
        self.assertEqual(config["chat_template"], "{{ messages[0].content }}")

    def test_the_package_of_onnxruntime_genai_has_the_same_weights(self):
        write_gguf(self.source)
        gguf_to_package.convert(self.source, self.package)
        target = self.folder / "genai"
        gguf_to_genai.convert(self.source, target)
        decoder = self.initialisers("decoder")
        graph = onnx.load(target / "model.onnx").graph
        model = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        attn = "model.layers.0.self_attn"
        parts = [decoder.pop(f"{attn}.{part}_proj.weight") for part in "qkv"]
        np.testing.assert_array_equal(model.pop(f"{attn}.qkv_proj.weight"), np.concatenate(parts, 1))
        shared = sorted(set(decoder) - {"mask.axes"})
        self.assertEqual(sorted(set(model) - {"one", "axis"}), shared)
        for name in shared:
            np.testing.assert_array_equal(model[name], decoder[name], err_msg=name)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((target / name).read_bytes(), (self.package / name).read_bytes())
        config = json.loads((target / "genai_config.json").read_text())["model"]
        self.assertEqual((config["vocab_size"], config["context_length"]), (VOCABULARY, CONTEXT))
        ports = {port.name for port in [*graph.input, *graph.output]}
        for names in (config["decoder"]["inputs"], config["decoder"]["outputs"]):
            self.assertLessEqual({name.replace("%d", "0") for name in names.values()}, ports)

    def test_a_matrix_of_its_own_for_the_output(self):
        write_gguf(self.source, output=True)
        gguf_to_package.convert(self.source, self.package)
        target = self.folder / "genai"
        gguf_to_genai.convert(self.source, target)
        graph = onnx.load(target / "model.onnx").graph
        model = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for component, name in (("embedding", "model.embed_tokens.weight"), ("decoder", "lm_head.weight")):
            np.testing.assert_array_equal(model[name], self.initialisers(component)[name], err_msg=name)

    def test_what_is_not_handled_is_refused_and_leaves_the_old_package(self):
        write_gguf(self.source)
        gguf_to_package.convert(self.source, self.package)
        before = sorted(path.name for path in self.package.iterdir())
        cases = [
            ({"architecture": "qwen2"}, "architecture 'qwen2'"),
            ({"pre": "llama-bpe"}, "pre-tokenizer 'llama-bpe'"),
            ({"extra": ["blk.0.attn_q.bias"]}, "blk.0.attn_q.bias"),
            ({"extra": ["rope_freqs.weight"]}, "rotary factors"),
        ]
        for settings, message in cases:
            with self.subTest(message):
                other = self.folder / "other.gguf"
                write_gguf(other, **settings)
                arguments = ["gguf_to_package.py", str(other), str(self.package)]
                with mock.patch.object(sys, "argv", arguments), self.assertRaises(SystemExit) as raised:
                    with contextlib.redirect_stderr(io.StringIO()):
                        gguf_to_package.main()
                self.assertIn(message, str(raised.exception.code))
                self.assertEqual(sorted(path.name for path in self.package.iterdir()), before)
                self.assertEqual(list(self.folder.glob("*.partial")), [])


if __name__ == "__main__":
    unittest.main()
