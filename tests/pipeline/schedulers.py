"""Writes schedulers.json: what the schedulers of the diffusers library make of the same model
outputs and the same noise.

    pip install diffusers==0.35.2 torch numpy
    python tests/pipeline/schedulers.py

The file was made with diffusers 0.35.2 and torch 1.13. Each case has 20 steps over 4 elements.
The model is a list of outputs that does not depend on what it reads. Noise is that of
src/generation/noise.rs, written here once more, and given to both: the first sample (draw 0,
times the scheduler's init_noise_sigma) and that of each step (draw 1 and on).

diffusers' own defaults, but for clip_sample=False: a latent has no range to be clipped to.
EulerAncestralDiscreteScheduler does not take prediction_type "sample"; such an output is given
to it as the epsilon that it amounts to. Karras and exponential spacing begin with the products
of 1 - beta in float64: rounded to float32, as diffusers has them, 1 minus the first of them is
off by 3e-5, and with it every noise level of a run.
"""

import json
import math
import pathlib

import diffusers
import numpy as np
import torch
from diffusers.schedulers import scheduling_ddpm, scheduling_euler_ancestral_discrete

STEPS = 20
SIZE = 4
SEED = 0x0123456789ABCDEF
SHOWN = [1, 2, 3, 10, 19, 20]
CUSTOM = [990 - 47 * step for step in range(STEPS)]


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


def noise(draw, count=SIZE, stream=0):
    values = []
    for block in range((count + 3) // 4):
        words = philox([block, 0, stream, draw], [SEED & 0xFFFFFFFF, SEED >> 32])
        for a, b in (words[:2], words[2:]):
            radius = math.sqrt(-2 * math.log((a + 1) / 2**32))
            angle = 2 * math.pi * (b / 2**32)
            values += [radius * math.cos(angle), radius * math.sin(angle)]
    return torch.tensor(values[:count], dtype=torch.float64).to(torch.float32)


def exact_betas(schedule):
    if schedule == "linear":
        return np.linspace(0.00085, 0.012, 1000)
    return np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2


def scheduler(kind, prediction, betas, more):
    trained = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": betas, "prediction_type": prediction}
    if kind == "ddpm":
        return diffusers.DDPMScheduler(clip_sample=False, **trained)
    if kind == "ddim":
        return diffusers.DDIMScheduler(clip_sample=False, **trained)
    if kind == "euler":
        return diffusers.EulerDiscreteScheduler(**trained, **more)
    if kind == "euler_ancestral":
        if prediction == "sample":
            trained["prediction_type"] = "epsilon"
        return diffusers.EulerAncestralDiscreteScheduler(**trained)
    if kind == "dpmpp_2m" and prediction == "flow":
        return diffusers.DPMSolverMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=more["shift"]
        )
    if kind == "dpmpp_2m":
        return diffusers.DPMSolverMultistepScheduler(**trained, **more)
    return diffusers.FlowMatchEulerDiscreteScheduler(**more)


def run(kind, prediction, betas, more, outputs):
    more = dict(more)
    custom = more.pop("timesteps", None)
    start = more.pop("start_step", 0)
    made = scheduler(kind, prediction, betas, more)
    if kind != "flow_matching" and any(key.endswith("_sigmas") for key in more):
        made.alphas_cumprod = torch.from_numpy(np.cumprod(1 - exact_betas(betas)))
    if custom:
        made.set_timesteps(timesteps=custom)
    else:
        made.set_timesteps(STEPS)
    if start:
        made.set_begin_index(start)
    scale = float(getattr(made, "init_noise_sigma", 1.0))
    sample = noise(0) * scale
    timesteps, inputs, samples = [float(timestep) for timestep in made.timesteps], [], []
    for step, timestep in list(enumerate(made.timesteps))[start:]:
        read = sample
        if hasattr(made, "scale_model_input"):
            read = made.scale_model_input(sample, timestep)
        output = outputs[step]
        if kind == "euler_ancestral" and prediction == "sample":
            output = (sample - output) / made.sigmas[step]
        fresh = noise(step + 1)
        for module in (scheduling_ddpm, scheduling_euler_ancestral_discrete):
            module.randn_tensor = lambda *_, **__: fresh
        # ddpm looks at the second dim, for a learnt variance.
        sample = made.step(output[None], timestep, sample[None]).prev_sample[0]
        inputs.append(read.tolist())
        samples.append(sample.tolist())
    shown = [step for step in SHOWN if step > start]
    return {
        "initial_scale": scale,
        "timesteps": timesteps,
        "inputs": [inputs[step - 1 - start] for step in shown],
        "samples": [samples[step - 1 - start] for step in shown],
    }


def cases():
    for kind in ("ddpm", "ddim", "euler", "euler_ancestral", "dpmpp_2m"):
        for prediction in ("epsilon", "v_prediction", "sample"):
            for betas in ("linear", "scaled_linear"):
                yield kind, prediction, betas, {}
    for kind in ("euler", "dpmpp_2m"):
        for spacing in ("use_karras_sigmas", "use_exponential_sigmas"):
            for prediction in ("epsilon", "v_prediction"):
                yield kind, prediction, "scaled_linear", {spacing: True}
    for kind in ("ddpm", "euler", "dpmpp_2m"):
        yield kind, "epsilon", "scaled_linear", {"timesteps": CUSTOM}
    for kind in ("euler", "dpmpp_2m"):
        yield kind, "epsilon", "scaled_linear", {"start_step": 5}
    for more in ({}, {"shift": 3.0}, {"shift": 3.0, "use_karras_sigmas": True}, {"use_exponential_sigmas": True}):
        yield "flow_matching", "flow", "linear", more
    for shift in (1.0, 3.0):
        yield "dpmpp_2m", "flow", "linear", {"shift": shift}


def rounded(value):
    """Nine digits, which is what a float32 has."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main():
    generator = np.random.default_rng(1)
    outputs = torch.from_numpy(generator.standard_normal((STEPS, SIZE)).astype(np.float32))
    made = []
    for kind, prediction, betas, more in cases():
        result = run(kind, prediction, betas, more, outputs)
        case = {"kind": kind, "prediction_type": prediction, "beta_schedule": betas, **more, **result}
        made.append({key: rounded(value) for key, value in case.items()})
    document = {"seed": SEED, "shown": SHOWN, "outputs": rounded(outputs.tolist())}
    head = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    lines = ",\n".join(json.dumps(case) for case in made)
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(f'{{{head},\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(made)} cases, {path.stat().st_size} bytes")


main()
