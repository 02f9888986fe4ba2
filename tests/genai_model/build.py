#!/usr/bin/env python3
"""Has onnxruntime-genai's own model builder make the packages that the answers are compared on.

    pip install onnxruntime-genai==0.18.0 transformers torch accelerate onnx onnx-ir gguf
    build.py MODEL.gguf PACKAGE FOLDER

writes FOLDER/f32 and FOLDER/int4, and in FOLDER/hf the weights as the builder reads them. The
file is third_party/SmolLM2-135M-Instruct.Q4_1.gguf, which scripts/fetch-model.sh fetches, and
the package is models/smollm2-135m-instruct, which it makes: the tokenizer is taken from it. This
takes 4 GB of memory and a download of gigabytes (torch), so that the repository's tests do
without: they open what tools/gguf_to_genai.py writes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def to_hugging_face(gguf, folder):
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # Its weights are plain numbers now, which its configuration does not say.
    config = loaded.config
    vars(config).pop("quantization_config", None)
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(model.generation_config, key, getattr(config, key))
    model.save_pretrained(folder)


def main():
    gguf, package, folder = map(Path, sys.argv[1:])
    to_hugging_face(gguf, folder / "hf")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(package / name, folder / "hf" / name)
    for name, precision in (("f32", "fp32"), ("int4", "int4")):
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-e", "cpu", "-p", precision]
        subprocess.run([*builder, "-m", folder / "hf", "-o", folder / name], check=True)


main()
