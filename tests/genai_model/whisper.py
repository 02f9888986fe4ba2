#!/usr/bin/env python3
"""Transcribes recordings by oxpipe and by onnxruntime-genai, with the same package of Whisper.

    pip install onnxruntime-genai==0.18.0 onnxruntime==1.31.1
    OXPIPE_LIBRARY=target/release/liboxpipe.so whisper.py PACKAGE RECORDING.wav...

PACKAGE is what onnxruntime-genai's model builder makes of whisper-tiny.en (or another Whisper):

    python -m onnxruntime_genai.models.builder -m openai/whisper-tiny.en -o PACKAGE -p fp32 -e cpu

Such a package has no program for sounds that oxpipe reads: both are given the log-mel spectrogram
that onnxruntime-genai makes of the recording's first 30 seconds. (That oxpipe's own is Whisper's is
what tests/media shows.) Fails if the tokens differ, of oxpipe's native runtime or of oxpipe on ONNX
Runtime.
"""

import ctypes
import os
import sys

import numpy as np
import onnxruntime_genai

PROMPT = ["<|startoftranscript|>", "<|notimestamps|>"]
END = "<|endoftext|>"
MAX_TOKENS = 200
OPTIONS_PIPELINE, OPTIONS_RUN = 3, 4


class Genai:
    def __init__(self, package):
        self.model = onnxruntime_genai.Model(package)
        self.tokenizer = onnxruntime_genai.Tokenizer(self.model)
        self.prompt = [self.tokenizer.to_token_id(token) for token in PROMPT]

    def transcribe(self, recording):
        processor = self.model.create_multimodal_processor()
        inputs = processor(["".join(PROMPT)], audios=onnxruntime_genai.Audios.open(recording))
        features = np.ascontiguousarray(inputs["audio_features"].as_numpy()).copy()
        options = onnxruntime_genai.GeneratorParams(self.model)
        options.set_search_options(max_length=len(PROMPT) + MAX_TOKENS, do_sample=False)
        generator = onnxruntime_genai.Generator(self.model, options)
        generator.set_inputs(inputs)
        while not generator.is_done():
            generator.generate_next_token()
        # The end is not among them.
        return [*generator.get_sequence(0).tolist(), self.tokenizer.to_token_id(END)], features


class Oxpipe:
    FLOAT32 = 1

    class Tensor(ctypes.Structure):
        """oxp_tensor_in"""

        _fields_ = [
            ("struct_size", ctypes.c_uint32),
            ("dtype", ctypes.c_uint32),
            ("data", ctypes.c_void_p),
            ("byte_len", ctypes.c_uint64),
            ("shape", ctypes.c_void_p),
            ("rank", ctypes.c_uint32),
            ("flags", ctypes.c_uint32),
        ]

    def __init__(self, package, backend):
        self.lib = ctypes.CDLL(os.environ["OXPIPE_LIBRARY"])
        self.lib.oxp_error_get_message.restype = ctypes.c_char_p
        self.lib.oxp_run_free.restype = None
        runtime, self.pipeline = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("oxp_runtime_create", None, ctypes.byref(runtime), None, None, None)
        options = self.options(OPTIONS_PIPELINE, backend=backend)
        pipeline = ctypes.byref(self.pipeline)
        self.call("oxp_pipeline_open", runtime, *text(package), options, pipeline, None, None, None)

    def call(self, name, *arguments):
        error = ctypes.c_void_p()
        if getattr(self.lib, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeError(self.lib.oxp_error_get_message(error, None).decode())

    def options(self, kind, **values):
        options = ctypes.c_void_p()
        self.call("oxp_options_create", kind, ctypes.byref(options))
        for key, value in values.items():
            self.call("oxp_options_set", options, *text(key), *text(value))
        return options

    def transcribe(self, prompt, features):
        run, options = ctypes.c_void_p(), self.options(OPTIONS_RUN, max_tokens=str(MAX_TOKENS))
        self.call("oxp_run_create", self.pipeline, options, ctypes.byref(run))
        shape = (ctypes.c_int64 * features.ndim)(*features.shape)
        tensor = self.Tensor(
            struct_size=ctypes.sizeof(self.Tensor), dtype=self.FLOAT32, data=features.ctypes.data,
            byte_len=features.nbytes, shape=ctypes.addressof(shape), rank=features.ndim,
        )  # fmt: skip
        self.call("oxp_run_set_input", run, *text("encoder.audio_features"), ctypes.byref(tensor))
        count = ctypes.c_uint64(len(prompt))
        self.call("oxp_run_append_tokens", run, (ctypes.c_int32 * len(prompt))(*prompt), count)
        self.call("oxp_run_generate", run, None, None, None, None)
        tokens, count = (ctypes.c_int32 * (len(prompt) + MAX_TOKENS))(), ctypes.c_uint64()
        self.call("oxp_run_tokens_copy", run, tokens, ctypes.c_uint64(len(tokens)), ctypes.byref(count))
        self.lib.oxp_run_free(run)
        return tokens[: count.value]


def text(string):
    encoded = string.encode()
    return encoded, ctypes.c_uint64(len(encoded))


def main():
    package, *recordings = sys.argv[1:]
    genai, differs = Genai(package), False
    engines = {backend: Oxpipe(package, backend) for backend in ("native", "ort")}
    for recording in recordings:
        expected, features = genai.transcribe(recording)
        print(f"{recording}: {genai.tokenizer.decode(expected)!r}")
        for backend, engine in engines.items():
            tokens = engine.transcribe(genai.prompt, features)
            equal = tokens == expected
            differs |= not equal
            print(f"  {backend}: {'the same' if equal else repr(genai.tokenizer.decode(tokens))}")
    sys.exit(differs)


main()
