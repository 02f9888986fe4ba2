"""Writes the test cases of the onnx package into a folder, the same bytes every time.

    python tools/onnx_node_tests.py FOLDER

FOLDER/node gets the node tests, which newer onnx packages keep as code; FOLDER/simple,
pytorch-operator and pytorch-converted get copies of those that lie in the package. A case is
a folder test_NAME with model.onnx and test_data_set_N/{input,output}_N.pb.
"""

import pathlib
import random
import shutil
import sys

import numpy
import onnx
from onnx import numpy_helper

# What tests/onnx_nodes/compare.rs allows.
TOLERANCE = (1e-3, 1e-7)
ON_DISK = ["simple", "pytorch-operator", "pytorch-converted"]


def to_proto(value, info):
    """The value of an input or output as the message that its declared type asks for."""
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    if isinstance(value, onnx.TensorProto):
        return value
    return numpy_helper.from_array(value, info.name)


def write(message, path):
    path.write_bytes(message.SerializeToString(deterministic=True))


def write_case(case, folder):
    if (case.rtol, case.atol) != TOLERANCE:
        sys.exit(f"{case.name} has a tolerance of its own, {case.rtol} and {case.atol}")
    folder.mkdir(parents=True)
    write(case.model, folder / "model.onnx")
    for index, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{index}"
        data.mkdir()
        graph = case.model.graph
        for kind, values, infos in [("input", inputs, graph.input), ("output", outputs, graph.output)]:
            for at, (value, info) in enumerate(zip(values, infos)):
                write(to_proto(value, info), data / f"{kind}_{at}.pb")


def main(folder):
    # Cases draw their inputs while they are collected, from the global generators.
    random.seed(0)
    numpy.random.seed(0)
    from onnx.backend.test.case.node import collect_testcases

    cases = collect_testcases()
    for case in cases:
        write_case(case, folder / "node" / case.name)
    data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for suite in ON_DISK:
        shutil.copytree(data / suite, folder / suite)
    on_disk = sum(1 for suite in ON_DISK for _ in (folder / suite).iterdir())
    print(f"onnx {onnx.__version__}: {len(cases)} node tests, {on_disk} others")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
