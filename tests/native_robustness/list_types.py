"""Prints types.txt: for each operator of the registry and each version of its definition, the types
that its inputs may have, from the onnx package (1.23.2).

    python tests/native_robustness/list_types.py > tests/native_robustness/types.txt

A line: operator, version, then for each input `parameter:type,type,...`.
"""

import re
from pathlib import Path

import onnx.defs

registry = (Path(__file__).parents[2] / "src/native/registry.rs").read_text()
entries = re.findall(r'op\("", "(\w+)", &\[([\d, ]+)\]', registry)
for name, versions in sorted(entries):
    for version in map(int, versions.split(",")):
        if not onnx.defs.has(name):
            continue
        schema = onnx.defs.get_schema(name, version)
        if schema.since_version != version:
            continue
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        inputs = []
        for parameter in schema.inputs:
            types = allowed.get(parameter.type_str, [parameter.type_str])
            names = [re.fullmatch(r"tensor\((\w+)\)", ty) for ty in types]
            names = sorted(found[1] for found in names if found)
            inputs.append(f"{parameter.type_str.replace(' ', '')}:{','.join(names)}")
        print(name, version, *inputs)
