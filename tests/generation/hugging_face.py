"""Writes hugging_face.json: what Hugging Face transformers' processors leave of random logits.

    pip install transformers==4.44.2 torch
    python tests/generation/hugging_face.py

Each case has the options of a run, the tokens before, the logits' size and how they are made, and
gives what is left: how many tokens, a checksum of their ids, and the logarithms of the
probabilities of a few. The processors get float64, so that what they say is not their rounding.

The logits of a case are those of `logits` below, which the test makes too: a permutation of bits
(the finaliser of MurmurHash3) of the id and the case's number, as a float32 from -12 to 12. With
"ties" they are whole numbers, with "infinities" every seventh is -inf.
"""

import json
import pathlib
import struct

import torch
from transformers.generation import logits_process as hf

PLACES = {10: 3, 1000: 40, 152064: 300}
END = [2]


def mixed(word):
    word ^= word >> 16
    word = word * 0x85EBCA6B & 0xFFFFFFFF
    word ^= word >> 13
    word = word * 0xC2B2AE35 & 0xFFFFFFFF
    return word ^ word >> 16


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def logits(size, number, kind):
    rows = []
    for token in range(size):
        value = float32((mixed(token + number * 0x9E3779B9 & 0xFFFFFFFF) >> 8) * (24.0 / 2**24) - 12.0)
        if kind == "ties":
            value = float(int(value))
        if kind == "infinities" and token % 7 == 3:
            value = float("-inf")
        rows.append(value)
    return rows


def history(size, number):
    """Tokens with repetitions in them: each place repeats the one six before it, mostly."""
    tokens = []
    for place in range(PLACES[size]):
        word = mixed(place + number * 77 + 5)
        if place >= 6 and word % 4:
            tokens.append(tokens[place - 6])
        else:
            tokens.append(word % size)
    return tokens


def option_text(value):
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def processors(options, prompt_len, size):
    """The processors of these options, in the library's order."""
    made = []
    if "min_length" in options:
        made.append(hf.MinLengthLogitsProcessor(options["min_length"], END))
    if "min_new_tokens" in options:
        made.append(hf.MinNewTokensLengthLogitsProcessor(prompt_len, options["min_new_tokens"], END))
    if "repetition_penalty" in options:
        made.append(hf.RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    if "no_repeat_ngram_size" in options:
        made.append(hf.NoRepeatNGramLogitsProcessor(options["no_repeat_ngram_size"]))
    if "logit_bias" in options:
        bias = {(int(k),): float(v) for k, v in (x.split(":") for x in options["logit_bias"].split(","))}
        made.append(hf.SequenceBiasLogitsProcessor(bias))
    if "bad_words" in options:
        words = [[int(t) for t in word.split()] for word in options["bad_words"].split(",")]
        made.append(hf.NoBadWordsLogitsProcessor(words, END))
    if "suppress_tokens" in options:
        made.append(hf.SuppressTokensLogitsProcessor([int(t) for t in options["suppress_tokens"].split(",")]))
    if "begin_suppress_tokens" in options:
        tokens = [int(t) for t in options["begin_suppress_tokens"].split(",")]
        made.append(hf.SuppressTokensAtBeginLogitsProcessor(tokens, prompt_len))
    if "temperature" in options:
        made.append(hf.TemperatureLogitsWarper(options["temperature"]))
    if "top_k" in options:
        made.append(hf.TopKLogitsWarper(options["top_k"]))
    if "top_p" in options:
        made.append(hf.TopPLogitsWarper(options["top_p"]))
    if "min_p" in options:
        made.append(hf.MinPLogitsWarper(options["min_p"]))
    if "typical_p" in options:
        made.append(hf.TypicalLogitsWarper(options["typical_p"]))
    return hf.LogitsProcessorList(made)


def case(number, size, options, kind="plain", prompt_len=None):
    tokens = history(size, number)
    prompt_len = len(tokens) - 2 if prompt_len is None else prompt_len
    scores = torch.tensor([logits(size, number, kind)], dtype=torch.float64)
    ids = torch.tensor([tokens])
    # Some of them make float32 of what they add.
    left = processors(options, prompt_len, size)(ids, scores).double()
    logprobs = torch.log_softmax(left, dim=-1)[0]
    kept = torch.nonzero(torch.isfinite(logprobs))[:, 0]
    checksum = int((kept * kept % 1000003).sum()) % 1000003
    probes = sorted({int(kept[at * (len(kept) - 1) // 3]) for at in range(4)} | {t for t in set(tokens[-4:])})
    probes = [[t, round(float(logprobs[t]), 9)] for t in probes if torch.isfinite(logprobs[t])]
    return {
        "number": number,
        "size": size,
        "kind": kind,
        "prompt_len": prompt_len,
        "options": {name: option_text(value) for name, value in options.items()},
        "kept": len(kept),
        "checksum": checksum,
        "probes": probes,
    }


def main():
    cases = []

    def add(size, options, **more):
        cases.append(case(len(cases), size, options, **more))

    for size in PLACES:
        length = PLACES[size]
        for options in (
            {"min_length": length + 1},
            {"min_length": length},
            {"min_new_tokens": 3},
            {"min_new_tokens": 2},
            {"repetition_penalty": 1.3},
            {"repetition_penalty": 0.7},
            {"no_repeat_ngram_size": 1 if size > 10 else 4},
            {"no_repeat_ngram_size": 2},
            {"no_repeat_ngram_size": 3},
            {"logit_bias": "1:-3.5,5:2.25,7:0.5"},
            {"suppress_tokens": "0,3,9"},
            {"temperature": 0.6},
            {"temperature": 3.0},
            {"top_k": 1},
            {"top_k": 5},
            {"top_k": 50},
            {"top_k": 5000},
            {"top_p": 0.1},
            {"top_p": 0.9},
            {"top_p": 0.999},
            {"min_p": 0.05},
            {"min_p": 0.5},
            {"typical_p": 0.2},
            {"typical_p": 0.95},
            {"temperature": 1.7, "top_k": 40, "top_p": 0.8, "min_p": 0.02, "typical_p": 0.9},
            {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "temperature": 0.8, "top_p": 0.95},
            {"temperature": 2.5, "min_p": 0.1},
            {"temperature": 0.5, "top_k": 20},
        ):
            add(size, options)
        number = len(cases)
        tokens = history(size, number)
        add(size, {"bad_words": f"{tokens[-2]} {tokens[-1]} 7,4,{tokens[-1]} 8,5 6"})
        add(size, {"begin_suppress_tokens": "1,4"}, prompt_len=length)
        add(size, {"begin_suppress_tokens": "1,4"})
        for options in ({"top_k": 5}, {"top_k": 100}, {"min_p": 0.3}, {"typical_p": 0.6}, {"repetition_penalty": 1.3}):
            add(size, options, kind="ties")
        for options in ({"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.3}, {"typical_p": 0.6}, {"repetition_penalty": 1.3}):
            add(size, options, kind="infinities")
    path = pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")
    print(len(cases), "cases")


main()
