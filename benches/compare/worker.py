"""One engine in a process of its own: reads commands from stdin, answers on stdout.

    worker.py ENGINE MODEL THREADS

    prefill P     feeds P tokens and gets the logits of the last: seconds
    decode P N    feeds P tokens, then generates N greedily: seconds a token
    quit

Each answer is a line of JSON: seconds, CPU seconds of the process, resident and peak MB.
"""

import ctypes
import json
import os
import sys
import time


def prompt(length):
    return [(i * 7919) % 150 + 1 for i in range(length)]


class Oxpipe:
    """liboxpipe through its C functions, every component on `backend`."""

    ROOM = 64

    class Event(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_uint32), ("rest", ctypes.c_byte * 124)]

    def __init__(self, path, threads, backend="native"):
        self.lib = ctypes.CDLL(os.environ["OXPIPE_LIBRARY"])
        self.lib.oxp_error_get_message.restype = ctypes.c_char_p
        for name in ("options", "runtime", "pipeline", "run"):
            getattr(self.lib, f"oxp_{name}_free").restype = None
        runtime = ctypes.c_void_p()
        options = self.options(1, threads=threads)
        self.call("oxp_runtime_create", options, ctypes.byref(runtime), None, None, None)
        self.pipeline = ctypes.c_void_p()
        path = str(path).encode()
        options = self.options(3, backend=backend)
        self.call(
            "oxp_pipeline_open", runtime, path, ctypes.c_uint64(len(path)), options,
            ctypes.byref(self.pipeline), None, None, None,
        )  # fmt: skip

    def call(self, name, *arguments):
        error = ctypes.c_void_p()
        status = getattr(self.lib, name)(*arguments, ctypes.byref(error))
        if status != 0:
            raise RuntimeError(self.lib.oxp_error_get_message(error, None).decode())

    def options(self, kind, **values):
        options = ctypes.c_void_p()
        self.call("oxp_options_create", kind, ctypes.byref(options))
        for key, value in values.items():
            key, value = key.encode(), str(value).encode()
            lengths = ctypes.c_uint64(len(key)), ctypes.c_uint64(len(value))
            self.call("oxp_options_set", options, key, lengths[0], value, lengths[1])
        return options

    def started(self, length, max_tokens):
        run = ctypes.c_void_p()
        options = self.options(4, max_tokens=max_tokens, stop_on_eos="false")
        self.call("oxp_run_create", self.pipeline, options, ctypes.byref(run))
        tokens = (ctypes.c_int32 * length)(*prompt(length))
        self.call("oxp_run_append_tokens", run, tokens, ctypes.c_uint64(length))
        return run

    def prefill(self, length):
        run = self.started(length, 1)
        start = time.perf_counter()
        self.call("oxp_run_forward", run, None)
        seconds = time.perf_counter() - start
        self.lib.oxp_run_free(run)
        return seconds

    def decode(self, length, count):
        run = self.started(length, count + 1)
        event = self.Event(struct_size=128)
        self.call("oxp_run_step", run, ctypes.byref(event), None)
        start = time.perf_counter()
        self.call("oxp_run_generate", run, None, None, None, None)
        seconds = time.perf_counter() - start
        self.lib.oxp_run_free(run)
        return seconds / count


class Genai:
    def __init__(self, path, threads):
        import numpy
        import onnxruntime_genai

        self.genai, self.numpy = onnxruntime_genai, numpy
        config = onnxruntime_genai.Config(str(path))
        session = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        self.model = onnxruntime_genai.Model(config)

    def generator(self, length):
        options = self.genai.GeneratorParams(self.model)
        options.set_search_options(max_length=length, do_sample=False)
        return self.genai.Generator(self.model, options)

    def prefill(self, length):
        generator = self.generator(length + 8)
        tokens = self.numpy.array(prompt(length), self.numpy.int32)
        start = time.perf_counter()
        generator.append_tokens(tokens)
        return time.perf_counter() - start

    def decode(self, length, count):
        generator = self.generator(length + count + 8)
        generator.append_tokens(self.numpy.array(prompt(length), self.numpy.int32))
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(count):
            generator.generate_next_token()
        return (time.perf_counter() - start) / count


class Llama:
    def __init__(self, path, threads):
        import llama_cpp
        import numpy

        self.llama, self.numpy = llama_cpp, numpy

        @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        def silent(_level, _text, _data):
            pass

        self.silent = silent
        llama_cpp.llama_log_set(silent, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = 8192, 512, 512
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def clear(self):
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)

    def feed(self, tokens):
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            array = (self.llama.llama_token * len(part))(*part)
            batch = self.llama.llama_batch_get_one(array, len(part))
            if self.llama.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        logits = self.llama.llama_get_logits_ith(self.context, -1)
        return int(self.numpy.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def prefill(self, length):
        self.clear()
        start = time.perf_counter()
        self.feed(prompt(length))
        return time.perf_counter() - start

    def decode(self, length, count):
        self.clear()
        token = self.feed(prompt(length))
        start = time.perf_counter()
        for _ in range(count):
            token = self.feed([token])
        return (time.perf_counter() - start) / count


ENGINES = {
    "oxpipe": Oxpipe,
    "oxpipe-ort": lambda path, threads: Oxpipe(path, threads, "ort"),
    "genai": Genai,
    "genai-last": Genai,
    "llama": Llama,
}


def memory():
    """Resident and peak MB."""
    fields = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    return [int(fields[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM")]


def main():
    engine, path, threads = sys.argv[1:4]
    # Engines print to stdout now and then; answers go where they cannot.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content):
        resident, peak = memory()
        print(json.dumps({**content, "resident": resident, "peak": peak}), file=answers, flush=True)

    start = time.perf_counter()
    engine = ENGINES[engine](path, int(threads))
    answer(seconds=time.perf_counter() - start)
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "quit":
            break
        before = os.times()
        try:
            seconds = getattr(engine, command)(*map(int, numbers))
        except Exception as error:
            answer(error=repr(error))
            continue
        after = os.times()
        cpu = after.user + after.system - before.user - before.system
        answer(seconds=seconds, cpu=cpu)
    answers.flush()
    os._exit(0)


main()
