"""oxpipe against its peers on the same random-weight model, in one run.

Every engine is a process of its own; they take turns, round by round, so that whatever
else the machine does falls on all of them. Medians, ratios to the best peer, and fractions
of what the machine can do, measured in the same run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import models

HERE = Path(__file__).resolve().parent


class Worker:
    def __init__(self, engine, path, threads):
        self.name = engine
        arguments = [sys.executable, HERE / "worker.py", engine, path, str(threads)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.answer()
        self.load = answer["seconds"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        self.resident, self.peak = answer["resident"], answer["peak"]
        return answer

    def seconds(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()["seconds"]

    def quit(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.close()
        self.process.wait()


def read_bytes(shape, fmt):
    """Bytes of weights that one token must read: all matrices, the tied table once."""
    layer = shape.hidden * (2 * shape.hidden + 2 * shape.kv_size + 3 * shape.ffn)
    elements = shape.layers * layer + shape.vocabulary * shape.hidden
    scale = 4 / models.BLOCK
    return elements * {"f32": 4, "f16": 2, "bf16": 2, "int8": 1 + scale, "int4": 0.5 + scale}[fmt]


def kv_bytes(shape, fmt, length):
    return 2 * shape.layers * shape.kv_size * length * (2 if fmt in ("f16", "bf16") else 4)


def prefill_operations(shape, length):
    layer = shape.hidden * (2 * shape.hidden + 2 * shape.kv_size + 3 * shape.ffn)
    return 2 * (shape.layers * layer * length + shape.vocabulary * shape.hidden)


def packages(folder, shape, fmt, engines):
    """Engine name -> model, for those engines that run the format."""
    found = {}
    for engine in engines:
        if engine == "llama":
            found[engine] = models.gguf_file(folder, shape, fmt)
        # onnxruntime-genai's CPU build has no f16 and bf16 for these operators.
        elif engine in ("oxpipe",) or fmt not in ("f16", "bf16"):
            found[engine] = models.onnx_package(folder, shape, fmt, engine == "genai-last")
    return found


def measure(paths, threads, commands, rounds):
    workers = [Worker(engine, path, threads) for engine, path in paths.items()]
    samples = {(worker.name, command): [] for worker in workers for command in commands}
    for turn in range(rounds + 1):
        for command in commands:
            for worker in workers:
                seconds = worker.seconds(command)
                # The first turn touches memory and wakes the clocks.
                if turn:
                    samples[worker.name, command].append(seconds)
    for worker in workers:
        worker.quit()
    medians = {key: statistics.median(values) for key, values in samples.items()}
    return workers, medians


def rate(command, seconds):
    kind, length, *_ = command.split()
    return int(length) / seconds if kind == "prefill" else 1 / seconds


def show(shape, fmt, workers, medians, commands, ceilings):
    print(f"\n{shape.name} {fmt}")
    head = "".join(f"{command:>22}" for command in commands)
    print(f"{'engine':<14}{'load s':>8}{'MB':>7}{'peak':>7}{head}")
    for worker in workers:
        cells = []
        for command in commands:
            seconds = medians[worker.name, command]
            cells.append(f"{rate(command, seconds):11.1f}{seconds * 1e6:8.0f} us")
        line = f"{worker.name:<14}{worker.load:8.2f}{worker.resident:7}{worker.peak:7}"
        print(line + "".join(cells))
    ours = [worker for worker in workers if worker.name == "oxpipe"]
    peers = [worker for worker in workers if not worker.name.startswith("oxpipe")]
    if not ours:
        return
    for command in commands:
        seconds = medians["oxpipe", command]
        kind, length, *count = command.split()
        notes = []
        if peers:
            best = min(peers, key=lambda worker: medians[worker.name, command])
            ratio = medians[best.name, command] / seconds
            notes.append(f"{ratio:.2f}x the best peer ({best.name})")
        if kind == "decode":
            middle = int(length) + int(count[0]) // 2
            total = read_bytes(shape, fmt) + kv_bytes(shape, fmt, middle)
            fraction = total / seconds * 1e-9 / ceilings["read_gb_s"]
            notes.append(f"{fraction:.2f} of the read ceiling")
        else:
            fraction = prefill_operations(shape, int(length)) / seconds * 1e-9 / ceilings["f32_gflop_s"]
            notes.append(f"{fraction:.2f} of the f32 ceiling")
        print(f"  {command}: " + ", ".join(notes))


def measure_ceilings(folder, threads):
    program = folder / "ceilings"
    build = ["cc", "-O3", "-march=native", "-pthread", "-w", HERE / "ceilings.c", "-o", program]
    subprocess.run(build, check=True)
    return json.loads(subprocess.run([program, str(threads)], check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the models are kept")
    parser.add_argument("--shape", choices=models.SHAPES, default="qwen05")
    parser.add_argument("--formats", default=",".join(models.FORMATS), help="comma list")
    parser.add_argument("--engines", default="oxpipe,genai,genai-last,llama", help="comma list")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", default="decode 128 32,prefill 128,prefill 512", help="comma list")
    arguments = parser.parse_args()
    shape = models.SHAPES[arguments.shape]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    commands = arguments.commands.split(",")
    ceilings = measure_ceilings(arguments.folder, arguments.threads)
    print(f"{arguments.threads} threads; {ceilings['read_gb_s']} GB/s read, {ceilings['f32_gflop_s']} Gop/s f32")
    for fmt in arguments.formats.split(","):
        paths = packages(arguments.folder, shape, fmt, arguments.engines.split(","))
        start = time.time()
        workers, medians = measure(paths, arguments.threads, commands, arguments.rounds)
        show(shape, fmt, workers, medians, commands, ceilings)
        print(f"  ({time.time() - start:.0f} s)", flush=True)


main()
