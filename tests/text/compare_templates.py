"""Renders chat templates by Jinja, set up as transformers 5 sets it up, and by the library, and
says where they differ:

    python compare_templates.py LIBRARY FOLDER

for every *.jinja file in FOLDER. Needs jinja2. Run by hand: the templates of published models
are theirs.
"""

import ctypes
import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city, <now> & \"later\".",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}
CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "exact": True}}
CALLED = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdef123", "type": "function", "function": CALL}]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "{\"temperature\": 21.5}"},
]
CASES = {
    "user": {"messages": [{"role": "user", "content": "  Hello, wörld 🌍\n"}]},
    "turns": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "<think>hm</think>Hello!"},
            {"role": "user", "content": "And?"},
        ]
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    "tools": {"messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL]},
    "called": {"messages": CALLED, "tools": [TOOL]},
    "answered": {"messages": CALLED + [{"role": "assistant", "content": "21.5"}, {"role": "user", "content": "Thanks"}]},
    "thinking": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello", "reasoning_content": "A greeting.", "thinking": "A greeting."},
            {"role": "user", "content": "And?"},
        ],
        "extra": {"enable_thinking": False},
    },
    "documents": {
        "messages": [{"role": "user", "content": "Hi"}],
        "extra": {"documents": [{"title": "A", "text": "One"}, {"title": "B", "text": "Two"}]},
    },
    "wrong": {"messages": [{"role": "assistant", "content": "Hello"}, {"role": "assistant", "content": "Hello"}]},
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def by_jinja(source, case, add):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now(timezone.utc).strftime(form)
    variables = {**SPECIAL, "documents": None, "tools": case.get("tools"), "messages": case["messages"]}
    variables.update(case.get("extra", {}), add_generation_prompt=add)
    return environment.from_string(source).render(**variables)


class Library:
    def __init__(self, path):
        self.oxp = ctypes.CDLL(path)
        self.oxp.oxp_error_get_message.restype = ctypes.c_char_p

    def check(self, status, error):
        if status != 0:
            message = self.oxp.oxp_error_get_message(error, None).decode()
            self.oxp.oxp_error_free(error)
            raise ValueError(message)

    def render(self, source, case, add):
        error, template, needed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()

        def text(value):
            value = None if value is None else value.encode()
            return value, ctypes.c_uint64(len(value or b""))

        self.check(
            self.oxp.oxp_chat_template_create(
                *text(source), None, ctypes.byref(template), ctypes.byref(error)
            ),
            error,
        )
        buffer = ctypes.create_string_buffer(1 << 20)
        tools = case.get("tools")
        try:
            self.check(
                self.oxp.oxp_chat_template_render_copy(
                    template,
                    *text(json.dumps(case["messages"])),
                    *text(None if tools is None else json.dumps(tools)),
                    *text(json.dumps({**SPECIAL, **case.get("extra", {})})),
                    ctypes.c_int32(add),
                    buffer,
                    ctypes.c_uint64(len(buffer)),
                    ctypes.byref(needed),
                    ctypes.byref(error),
                ),
                error,
            )
        finally:
            self.oxp.oxp_chat_template_free(template)
        return buffer.raw[: needed.value].decode()


def outcome(render, *arguments):
    try:
        return render(*arguments), None
    except Exception as error:  # whatever a template does
        return None, str(error)


def main():
    library = Library(sys.argv[1])
    same = differ = 0
    for path in sorted(Path(sys.argv[2]).glob("*.jinja")):
        source = path.read_text()
        for name, case in CASES.items():
            for add in (True, False):
                ours, ours_error = outcome(library.render, source, case, add)
                theirs, theirs_error = outcome(by_jinja, source, case, add)
                if (ours is None) == (theirs is None) and ours == theirs:
                    same += 1
                    continue
                differ += 1
                print(f"{path.name}: {name}, add_generation_prompt={add}")
                print("  ours:  ", ours_error if ours is None else repr(ours))
                print("  theirs:", theirs_error if theirs is None else repr(theirs))
    print(f"{same} the same, {differ} different")
    sys.exit(differ != 0)


main()
