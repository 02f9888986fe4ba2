"""Writes audio.json: what libsndfile decodes, what torchaudio makes of other rates, and what the
feature extractor of Whisper in transformers makes of it.

    pip install "transformers==4.57.6" numpy soundfile==0.14.0 torch torchaudio==2.11.1
    python tests/media/audio.py

The file was made with these versions, torch 2.15 and libsndfile 1.2.2 (with mpg123 and LAME).
Sounds are worked out by a formula that the tests have too; of long results 64 elements from all
over them are shown, and the sum of their absolute values. Features are those of the extractor
without torch.
"""

import io
import json
import pathlib
import unittest.mock

import numpy as np
import soundfile
import torch
import torchaudio
import transformers.models.whisper.feature_extraction_whisper as whisper


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


def files():
    """Files, and the tolerance that a decoder is allowed."""
    cases = []
    for kind, subtype, extra, count, rate, channels in [
        ("WAV", "PCM_U8", {}, 100, 8000, 1),
        ("WAV", "PCM_16", {}, 101, 16000, 2),
        ("WAV", "PCM_24", {}, 64, 44100, 3),
        ("WAV", "PCM_32", {}, 50, 48000, 1),
        ("WAV", "FLOAT", {}, 50, 22050, 2),
        ("WAV", "DOUBLE", {}, 33, 96000, 1),
        ("WAVEX", "PCM_16", {}, 40, 16000, 2),
        ("WAVEX", "FLOAT", {}, 40, 16000, 1),
        ("FLAC", "PCM_S8", {}, 300, 8000, 1),
        ("FLAC", "PCM_16", {}, 5000, 16000, 2),
        ("FLAC", "PCM_24", {}, 600, 44100, 1),
        ("MP3", "MPEG_LAYER_III", {}, 4000, 16000, 1),
        ("MP3", "MPEG_LAYER_III", {}, 6000, 44100, 2),
    ]:
        buffer = io.BytesIO()
        soundfile.write(buffer, sound(count, rate, channels, len(cases)), rate, subtype, format=kind, **extra)
        data = buffer.getvalue()
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        mixed = samples.astype(np.float64).mean(1)
        cases.append({
            "name": f"{kind} {subtype} of {channels}",
            "file": data.hex(),
            "rate": rate,
            "mono": shown(mixed),
            "tolerance": 2e-5 if kind == "MP3" else 1e-7,
        })
    return cases


def resamples():
    cases = []
    for count, old, new in [
        (100, 8000, 16000),
        (1000, 48000, 16000),
        (999, 44100, 16000),
        (441, 22050, 16000),
        (300, 16000, 44100),
        (50, 11025, 16000),
        (1, 8000, 16000),
        (7, 96000, 16000),
        (500, 4001, 3999),
        (333, 16000, 16000),
    ]:
        samples = sound(count, old, 1, count)[:, 0]
        # In float64: its float32 results are off by 4e-6 from the definition.
        samples = torch.from_numpy(samples.astype(np.float64))
        result = torchaudio.functional.resample(samples, old, new)
        cases.append({"count": count, "from": old, "to": new, "result": shown(result.numpy())})
    return cases


def features():
    cases = []
    for name, count, rate, channels, options in [
        ("one second", 16000, 16000, 1, {}),
        ("8 kHz stereo", 12000, 8000, 2, {}),
        ("48 kHz", 60000, 48000, 1, {}),
        ("empty", 0, 16000, 1, {}),
        ("one sample", 1, 16000, 1, {}),
        ("199 samples", 199, 16000, 1, {}),
        ("31 seconds", 31 * 16000, 16000, 1, {}),
        ("44.1 kHz of 3 channels", 30000, 44100, 3, {}),
        ("128 bins", 9000, 16000, 1, {"feature_size": 128}),
        ("short window", 9000, 16000, 1, {"chunk_length": 1, "hop_length": 100, "n_fft": 256}),
        ("exactly 30 seconds", 480000, 16000, 1, {}),
    ]:
        samples = sound(count, rate, channels, 3).astype(np.float64).mean(1).astype(np.float32)
        if rate != 16000:
            samples = torch.from_numpy(samples.astype(np.float64))
            samples = torchaudio.functional.resample(samples, rate, 16000).numpy().astype(np.float32)
        extractor = whisper.WhisperFeatureExtractor(**options)
        with unittest.mock.patch.object(whisper, "is_torch_available", lambda: False):
            result = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
        config = {"feature_extractor_type": "WhisperFeatureExtractor", **options}
        cases.append({"name": name, "count": count, "rate": rate, "channels": channels, "config": config, "features": shown(result)})
    return cases


def main():
    document = {"files": files(), "resamples": resamples(), "features": features()}
    path = pathlib.Path(__file__).with_name("audio.json")
    path.write_text(json.dumps(document, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


main()
