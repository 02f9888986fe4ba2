"""Which of ONNX's test cases ONNX Runtime passes on the CPU, a name a line.

    python tools/onnxruntime_passes.py FOLDER >tests/onnx_nodes/ort_passes.txt

FOLDER is what onnx_node_tests.py has written. Needs onnxruntime beside onnx; opsets that are
not released yet are allowed. Values are compared as onnx.backend.test.runner does. Cases of
types that its Python binding cannot take from numpy (float8, 4 bits, ...) do not count as passed.
"""

import os
import pathlib
import subprocess
import sys

SUITES = ["node", "simple", "pytorch-operator", "pytorch-converted"]


def read(path, info):
    import onnx
    from onnx import numpy_helper

    data = path.read_bytes()
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def passes(folder):
    import onnx
    import onnxruntime
    from onnx.backend.test.runner import Runner

    onnxruntime.set_default_logger_severity(4)
    model = onnx.load(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    fed = {value.name for value in session.get_inputs()}
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = {}, []
        for at, info in enumerate(model.graph.input):
            path = data / f"input_{at}.pb"
            if path.exists() and info.name in fed:
                inputs[info.name] = read(path, info)
        for at, info in enumerate(model.graph.output):
            outputs.append(read(data / f"output_{at}.pb", info))
        Runner.assert_similar_outputs(outputs, session.run(None, inputs), 1e-3, 1e-7)


def name(folder):
    suite, case = folder.parent.name, folder.name.removeprefix("test_")
    return case if suite == "node" else f"{suite}/{case}"


def judge(folders):
    """Prints the names of those that pass, each as soon as it does."""
    for folder in folders:
        print("try", folder, flush=True)
        try:
            passes(folder)
        except Exception:  # Whatever it is, the case does not pass.
            continue
        print("pass", folder, flush=True)


def main(root):
    waiting = [folder for suite in SUITES for folder in sorted((root / suite).glob("test_*"))]
    passed = []
    # In another process, since some models end it; then the next one starts after the model.
    while waiting:
        command = [sys.executable, __file__, "--judge", *map(str, waiting)]
        environment = {**os.environ, "ALLOW_RELEASED_ONNX_OPSET_ONLY": "0"}
        lines = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ).stdout.splitlines()
        passed += [pathlib.Path(line[5:]) for line in lines if line.startswith("pass ")]
        tried = sum(1 for line in lines if line.startswith("try "))
        waiting = waiting[max(tried, 1) :]

    from importlib.metadata import version

    print(f"# Cases that onnxruntime {version('onnxruntime')} passes, by tools/onnxruntime_passes.py.")
    for folder in passed:
        print(name(folder))


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--judge":
        judge([pathlib.Path(folder) for folder in sys.argv[2:]])
    elif len(sys.argv) == 2:
        main(pathlib.Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
