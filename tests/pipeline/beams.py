"""Writes beams.json: what beam search of Hugging Face transformers finds with a small model.

    pip install transformers==4.44.2 torch
    python tests/pipeline/beams.py

The model is a formula, which tests/pipeline/beams.rs has too: the logit of a token is a permutation of
bits (the finaliser of MurmurHash3) of the token and of the sum of place times id of all tokens before,
from -2.5 to 2.5, and 1.5 more for 7 and 2, which end answers. A token is right only if all of what is
before it is.
"""

import json
import pathlib
import struct

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

VOCABULARY = 12


def mixed(word):
    word ^= word >> 16
    word = word * 0x85EBCA6B & 0xFFFFFFFF
    word ^= word >> 13
    word = word * 0xC2B2AE35 & 0xFFFFFFFF
    return word ^ word >> 16


def logit(total, token):
    value = (mixed(total * 131 + token & 0xFFFFFFFF) >> 8) * (5.0 / 2**24) - 2.5 + (1.5 if token in (7, 2) else 0.0)
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Model(PreTrainedModel, GenerationMixin):
    config_class = PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def can_generate(self):
        return True

    def prepare_inputs_for_generation(self, input_ids, **_):
        return {"input_ids": input_ids}

    def forward(self, input_ids, **_):
        rows = []
        for tokens in input_ids.tolist():
            total = sum(place * token for place, token in enumerate(tokens, 1))
            rows.append([logit(total, token) for token in range(VOCABULARY)])
        return CausalLMOutput(logits=torch.tensor(rows, dtype=torch.float64)[:, None, :])


def main():
    model = Model(PretrainedConfig(vocab_size=VOCABULARY, is_encoder_decoder=False))
    cases = []
    prompts = [[3, 1, 4], [5], [9, 2, 6, 5]]
    variants = [
        {"num_beams": 2},
        {"num_beams": 4, "num_return_sequences": 4},
        {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0},
        {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0},
        {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -1.0},
        {"num_beams": 5, "num_return_sequences": 5, "early_stopping": True},
        {"num_beams": 3, "num_return_sequences": 3, "early_stopping": "never"},
        {"num_beams": 3, "num_return_sequences": 3, "early_stopping": "never", "length_penalty": -0.5},
        {"num_beams": 4, "num_return_sequences": 2, "no_repeat_ngram_size": 2},
        {"num_beams": 4, "num_return_sequences": 4, "repetition_penalty": 1.4},
        {"num_beams": 4, "num_return_sequences": 4, "min_new_tokens": 5},
        {"num_beams": 12, "num_return_sequences": 12},
    ]
    for prompt in prompts:
        for ends in ([7], [7, 2], []):
            for options in variants:
                config = GenerationConfig(
                    max_new_tokens=9,
                    eos_token_id=ends or None,
                    pad_token_id=0,
                    do_sample=False,
                    use_cache=False,
                    return_dict_in_generate=True,
                    output_scores=True,
                    **options,
                )
                with torch.no_grad():
                    found = model.generate(torch.tensor([prompt]), generation_config=config)
                sequences = []
                for tokens, score in zip(found.sequences.tolist(), found.sequences_scores.tolist()):
                    answer = tokens[len(prompt) :]
                    for place, token in enumerate(answer):
                        if token in ends:
                            answer = answer[: place + 1]
                            break
                    sequences.append([answer, round(score, 7)])
                texts = {name: str(value).lower() for name, value in options.items()}
                cases.append({"prompt": prompt, "ends": ends, "options": texts, "sequences": sequences})
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
    print(len(cases), "cases")


main()
