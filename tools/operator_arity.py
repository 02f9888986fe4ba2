"""Writes src/native/arity/onnx.rs: the inputs and outputs of each operator of the registry that is of
ai.onnx or ai.onnx.ml, from the onnx package (1.23.2).

    python tools/operator_arity.py > src/native/arity/onnx.rs
"""

import re
import sys
from pathlib import Path

import onnx.defs

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src/native/arity/onnx.rs"
OPTION = onnx.defs.OpSchema.FormalParameterOption

HEADER = """\
// Written by tools/operator_arity.py from the onnx package 1.23.2. Do not edit.

use super::{Arity, ML, arity};

/// A version is left out where it changes nothing.
#[rustfmt::skip] // a line each
pub(super) static ARITIES: &[Arity] = &[
"""


def letters(parameters):
    """R for a required parameter, o for an optional one, v for any number of them."""
    text = ""
    for parameter in parameters:
        if parameter.option == OPTION.Variadic:
            text += "R" * parameter.min_arity + "v"
        else:
            text += "R" if parameter.option == OPTION.Single else "o"
    return text


def lines():
    registry = (ROOT / "src/native/registry.rs").read_text()
    entries = re.findall(r'^    (?:op|control)\((?:(""|ML|MS), )?"(\w+)", &\[([\d, ]+)\]', registry, re.M)
    for domain, name, versions in entries:
        domain_name = "ai.onnx.ml" if domain == "ML" else ""
        if domain == "MS" or not onnx.defs.has(name, domain_name):
            continue
        before = None
        for version in map(int, versions.split(",")):
            schema = onnx.defs.get_schema(name, version, domain_name)
            both = letters(schema.inputs), letters(schema.outputs)
            if both != before:
                before = both
                shown = "ML" if domain == "ML" else '""'
                yield f'    arity({shown}, "{name}", {version}, "{both[0]}", "{both[1]}"),\n'


def table():
    return HEADER + "".join(lines()) + "];\n"


if __name__ == "__main__":
    sys.stdout.write(table())
