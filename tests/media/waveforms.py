"""Writes waveforms.json: what the feature extractor of Wav2Vec2 in transformers makes of sounds.

    pip install "transformers==4.57.6" numpy
    python tests/media/waveforms.py

The file was made with this version. Sounds are those of audio.py, and shown as they are there.
"""

import json
import pathlib

import numpy as np
from transformers import Wav2Vec2FeatureExtractor


def sound(count, rate, channels, seed):
    """Tones that glide, and noise."""
    time = np.arange(count)[:, None] / rate
    channel = np.arange(channels)[None, :]
    tone = 0.4 * np.sin(2 * np.pi * (220 + 37 * seed + 200 * time) * time * (1 + channel / 3))
    mixed = (np.arange(count)[:, None] * 7919 + channel * 104729 + seed * 31) * 2654435761 % 2**32
    return (tone + 0.1 * (mixed / 2**31 - 1)).astype(np.float32)


def shown(array):
    flat = np.asarray(array).astype(np.float64).ravel()
    places = np.linspace(0, flat.size - 1, 64).astype(int) if flat.size > 64 else np.arange(flat.size)
    return {
        "shape": list(np.shape(array)),
        "absolute": float(np.abs(flat).sum()),
        "at": places.tolist(),
        "elements": [float(f"{value:.9g}") for value in flat[places]],
    }


def main():
    cases = []
    for count, normalize in [(1, True), (7, True), (16000, True), (20123, True), (500, False)]:
        extractor = Wav2Vec2FeatureExtractor(do_normalize=normalize)
        samples = sound(count, 16000, 1, count)[:, 0]
        values = extractor(samples, sampling_rate=16000, return_tensors="np")["input_values"]
        config = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", **extractor.to_dict()}
        cases.append({"count": count, "config": config, "input_values": shown(values)})
    path = pathlib.Path(__file__).with_name("waveforms.json")
    path.write_text(json.dumps(cases, separators=(",", ":")).replace('},{"count', '},\n{"count') + "\n")


main()
