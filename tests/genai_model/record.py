#!/usr/bin/env python3
"""What onnxruntime-genai answers to ten prompts, greedily, 64 tokens each.

    pip install onnxruntime-genai==0.18.0
    record.py PACKAGE              prints the answers; tokens.json is of the float32 package
    record.py PACKAGE tokens.json  also fails if the answers are not those of the file

PACKAGE is SmolLM2-135M-Instruct: what tools/gguf_to_genai.py writes, or what the model builder
of onnxruntime-genai writes (build.sh). tokens.json is what both of them answer.

`margin` is how far, in logits, the second choice was behind the first at the closest position.
"""

import json
import sys

import numpy as np
import onnxruntime_genai as og

LENGTH = 64
# To each of them the model has more to say than 64 tokens, and no choice on the way is so close
# (a thousandth of a logit) that the order of additions could make it another.
MESSAGES = [
    "Tell me a story about a lighthouse.",
    "Explain how rain forms.",
    "Write a Python function that reverses a list, and explain it.",
    "What are the differences between cats and dogs?",
    "List 12 things to pack for a trip in winter.",
    "Why is the sky blue at noon and red at sunset?",
    "Describe the city of Paris to somebody who has never been there.",
    "How does a bicycle stay upright?",
    "Summarize the history of the Roman Empire.",
    "Write a letter to a friend about a new job.",
]


def answer(model, prompt):
    options = og.GeneratorParams(model)
    options.set_search_options(max_length=len(prompt) + LENGTH, do_sample=False)
    generator = og.Generator(model, options)
    generator.append_tokens(np.array(prompt, np.int32))
    margins = []
    while not generator.is_done():
        second, first = np.partition(generator.get_logits().ravel(), -2)[-2:]
        margins.append(float(first - second))
        generator.generate_next_token()
    tokens = generator.get_sequence(0)[len(prompt) :].tolist()
    if len(tokens) != LENGTH or min(margins) < 1e-3:
        sys.exit(f"the answer has {len(tokens)} tokens, of a margin of {min(margins)}")
    return tokens, round(min(margins), 4)


def main():
    package, *expected = sys.argv[1:]
    model = og.Model(package)
    tokenizer = og.Tokenizer(model)
    records = []
    for message in MESSAGES:
        messages = json.dumps([{"role": "user", "content": message}])
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        prompt = tokenizer.encode(text).tolist()
        tokens, margin = answer(model, prompt)
        print(repr(tokenizer.decode(tokens)), file=sys.stderr)
        records.append({"message": message, "prompt": prompt, "tokens": tokens, "margin": margin})
    lines = ",\n".join(json.dumps(record) for record in records)
    print(f"[\n{lines}\n]")
    if expected:
        with open(expected[0]) as file:
            for record, wanted in zip(records, json.load(file), strict=True):
                for part in ("message", "prompt", "tokens"):
                    if record[part] != wanted[part]:
                        sys.exit(f"{record['message']}: {part} {record[part]}, expected {wanted[part]}")


main()
