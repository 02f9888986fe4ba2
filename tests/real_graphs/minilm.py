#!/usr/bin/env python3
"""Embeds the texts of minilm.json with all-MiniLM-L6-v2, as sentence-transformers does it.

    python minilm.py FOLDER

FOLDER is third_party/real-graphs/minilm. Tokens are those of Hugging Face's tokenizers, cut off at the
model's max_seq_length of 256 with [CLS] and [SEP] kept; ONNX Runtime makes the hidden states; numpy
takes their mean over the tokens of a text and divides it by its norm. Needs onnxruntime, tokenizers and
numpy. Writes minilm.json beside itself.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MAX_SEQ_LENGTH = 256

TEXTS = [
    "A cat sits on the windowsill.",
    "A kitten is resting by the window.",
    "The stock market fell sharply on Monday.",
    "",
    " ",
    "a",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Le renard brun saute par-dessus le chien paresseux — vraiment ?",
    "これは日本語の文です。",
    "Привет, мир!",
    "مرحبا بالعالم",
    "😀👩‍👩‍👧‍👦 family e\u0301clair ﬁne ½",
    "naïve café résumé NAÏVE CAFÉ",
    "tab\tand\nnew line\u00a0and no-break \u200b zero width",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "x = [i**2 for i in range(10)]  # squares",
    "[CLS] is written here, and [SEP] and [MASK] too.",
    "2024-02-29T12:34:56Z 1,234,567.89 $ 100 %",
    "word " * 254,
    "word " * 255,
    "The quick brown fox jumps over the lazy dog. " * 100,
]


def main():
    folder = Path(sys.argv[1])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_SEQ_LENGTH)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    rows = []
    for text in TEXTS:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (hidden,) = session.run(["last_hidden_state"], inputs)
        mean = hidden[0].astype(np.float64).mean(axis=0)
        vector = mean / max(np.linalg.norm(mean), 1e-12)
        rows.append({"text": text, "tokens": ids.shape[1], "vector": [round(float(x), 7) for x in vector]})
    lines = ",\n".join(json.dumps(row) for row in rows)
    Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
