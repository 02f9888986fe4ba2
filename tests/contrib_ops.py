"""Prints the values that contrib_ops.rs expects, computed by ONNX Runtime.

    python tests/contrib_ops.py        (needs numpy, onnx and onnxruntime 1.31)
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

np.set_printoptions(floatmode="unique", linewidth=100)


def pattern(*shape):
    """Quarters from -5/4 to 5/4 in an irregular order, exact in every float type."""
    return ((np.arange(np.prod(shape)) * 7 % 11 - 5) / 4).astype(np.float32).reshape(shape)


X = pattern(2, 2, 4)
INPUTS = {
    "x": X,
    "skip": X[::-1] / 2,
    "row": X[:1] / 2,
    "gamma": pattern(4) + 2,
    "beta": pattern(4) / 4,
    "bias": pattern(4) / 8,
    "tiny": X / 65536,
}


def show(op_type, inputs, outputs, domain="com.microsoft", **attributes):
    node = helper.make_node(op_type, inputs, outputs, domain=domain, **attributes)
    feeds = {name: np.ascontiguousarray(INPUTS[name]) for name in inputs if name}
    graph = helper.make_graph(
        [node],
        op_type,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    print(op_type, inputs, attributes)
    for output, value in zip(session.get_outputs(), session.run(None, feeds)):
        print(f"  {output.name} {list(value.shape)} {value.ravel().tolist()}")


show("SkipLayerNormalization", ["x", "skip", "gamma", "beta", "bias"], ["y", "mean", "inverse", "sum"], epsilon=1e-3)
show("SkipLayerNormalization", ["x", "row", "gamma"], ["y"])
show("SkipLayerNormalization", ["tiny", "tiny", "gamma"], ["y"])
show("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma", "bias"], ["y", "mean", "inverse", "sum"], epsilon=1e-3)
show("SkipSimplifiedLayerNormalization", ["tiny", "tiny", "gamma"], ["y"])
show("SimplifiedLayerNormalization", ["x", "gamma"], ["y", "inverse"], domain="", axis=-1, epsilon=1e-3)
show("Gelu", ["x"], ["y"])
show("QuickGelu", ["x"], ["y"])
show("QuickGelu", ["x"], ["y"], alpha=1.5)
