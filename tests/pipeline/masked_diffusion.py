"""Writes masked_diffusion.json: what LLaDA's sampling makes of masked tokens, step by step.

    python tests/pipeline/masked_diffusion.py

A straight evaluation of the algorithm of Nie et al., "Large Language Diffusion Models"
(arXiv:2502.09992, 2025), in the form of the code published with it: the tokens of exp(logits) /
(-ln u)^temperature, confidence by the softmax of the logits or at random, a number of positions
for each step of each block. Two things differ, and are written here as the library has them:
the mask is no token to be chosen, and steps and positions that are no multiples of the blocks and
steps are shared out, the larger shares first. u is that of src/generation/noise.rs.

With guidance the model is asked a second time, with masks in the places of the prompt, and its
logits are un + (w + 1) * (logits - un), w of the paper being the scale less one.

The model's logits are multiples of 1/8, and so exact in float32, of the tokens it reads.
"""

import json
import math
import pathlib

VOCABULARY = 12
MASK = 11
SEED = 0x0123456789ABCDEF


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ counter[3] ^ key[1],
            first & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def uniform(index, stream, draw):
    words = philox([index // 4, 0, stream, draw], [SEED & 0xFFFFFFFF, SEED >> 32])
    return (words[index % 4] + 0.5) / 2**32


def logits(ids):
    total = sum((place + 1) * id for place, id in enumerate(ids))
    return [
        [((place * 7 + token * 13 + total * 5 + token * token * (ids[place - 1] + 3)) % 97) / 8 for token in range(VOCABULARY)]
        for place in range(len(ids))
    ]


def shares(total, parts):
    return [total // parts + (part < total % parts) for part in range(parts)]


def guided(ids, prompt, scale):
    rows = logits(ids)
    if scale == 1:
        return rows
    without = logits([MASK if place in prompt else id for place, id in enumerate(ids)])
    w = scale - 1
    return [[un + (w + 1) * (own - un) for own, un in zip(*pair)] for pair in zip(rows, without)]


def sample(ids, steps, temperature, block_length, remasking, scale):
    prompt = {place for place, id in enumerate(ids) if id != MASK}
    masked = [place for place, id in enumerate(ids) if id == MASK]
    length = block_length or len(masked)
    blocks = [masked[start : start + length] for start in range(0, len(masked), length)]
    shown, draw = [], 0
    for block, block_steps in zip(blocks, shares(steps, len(blocks))):
        for count in shares(len(block), block_steps):
            draw += 1
            found = []
            rows = guided(ids, prompt, scale)
            for place in block:
                if ids[place] != MASK:
                    continue
                row = rows[place]
                scores = []
                for token, logit in enumerate(row):
                    score = math.exp(logit)
                    if temperature > 0:
                        score /= (-math.log(uniform(place * VOCABULARY + token, 0, draw))) ** temperature
                    scores.append(-1.0 if token == MASK else score)
                token = scores.index(max(scores))
                if remasking == "random":
                    confidence = uniform(place, 1 << 31, draw)
                else:
                    # Of rows that differ by a number the same.
                    shifted = [math.exp(logit - max(row)) for logit in row]
                    confidence = shifted[token] / sum(shifted)
                found.append((-confidence, place, token))
            for _, place, token in sorted(found)[:count]:
                ids[place] = token
            shown.append(list(ids))
    return shown


def main():
    prompt = [3, 1, 4]
    cases = []
    settings = [
        (0, "low_confidence", 1),
        (0, "random", 1),
        (0.5, "low_confidence", 1),
        (1, "random", 1),
        (0, "low_confidence", 1.5),
        (0.5, "low_confidence", 3),
        (1, "random", 0),
    ]
    for ids, steps, block_length in [
        (prompt + [MASK] * 8, 8, None),
        (prompt + [MASK] * 8, 4, None),
        (prompt + [MASK] * 8, 8, 4),
        (prompt + [MASK] * 10, 7, 4),
        (prompt + [MASK] * 3 + [2] + [MASK] * 4 + [5], 5, 3),
        ([MASK] * 6, 3, 6),
    ]:
        for temperature, remasking, scale in settings:
            cases.append(
                {
                    "ids": ids,
                    "steps": steps,
                    "block_length": block_length,
                    "temperature": temperature,
                    "remasking": remasking,
                    "guidance_scale": scale,
                    "after": sample(list(ids), steps, temperature, block_length, remasking, scale),
                }
            )
    lines = ",\n".join("    " + json.dumps(case) for case in cases)
    text = f'{{\n  "vocabulary": {VOCABULARY},\n  "mask": {MASK},\n  "seed": {SEED},\n  "cases": [\n{lines}\n  ]\n}}\n'
    pathlib.Path(__file__).with_suffix(".json").write_text(text)


if __name__ == "__main__":
    main()
