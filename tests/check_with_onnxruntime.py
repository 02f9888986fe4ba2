#!/usr/bin/env python3
"""Checks that packages made by the tests give the expected values without oxpipe.

    pip install onnxruntime==1.31.1 pyyaml
    export OXP_WRITE_FIXTURES=build/fixtures
    cargo test --test packages --test pipeline --test capi -- --ignored fixtures_for_onnxruntime
    tests/check_with_onnxruntime.py build/fixtures

The graphs of the fixtures, and what is expected of them, are made in Rust, and the code under test
runs them. Here onnxruntime's Python package runs the same files, in loops that are written from the
formats' definitions alone: for a decoder, choose the largest logit, feed it, hand the caches on.
Covered are caches that grow, shared buffers of several layouts, static caches, a window with a
sink, recurrent states, positions on one axis and on three, encoders of what a request may leave
out, an encoder whose keys and values are held, Optimum's decoders in one graph and in two, frames
of codes with each kind of embedder, loops with and without a scheduler, several loops in one
package and masked diffusion. Every folder holds a package and cases.json: for each case the tokens
and inputs that are given, and the tokens, codes of frames, values, and states after each step that
are expected.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import yaml

sys.path.insert(0, str(Path(__file__).parent / "pipeline"))
import masked_diffusion

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


class Component:
    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = {port.name: port for port in self.session.get_inputs()}
        self.outputs = [port.name for port in self.session.get_outputs()]

    def array(self, port, values):
        return np.asarray(values, DTYPES[self.inputs[port].type])

    def zeros(self, port, length=0):
        """Of the shape that the port declares: an open first dim is 1, the others are `length`."""
        shape = [dim if isinstance(dim, int) else length for dim in self.inputs[port].shape]
        if not isinstance(self.inputs[port].shape[0], int):
            shape[0] = 1
        return self.array(port, np.zeros(shape))

    def run(self, inputs):
        given = {port: self.array(port, inputs[port]) for port in self.inputs}
        return dict(zip(self.outputs, self.session.run(None, given)))


class Decoder:
    """A component with a cache or states, as an `io` block of inference_metadata.yaml tells its ports."""

    def __init__(self, component, io, buffer=0, given=None, positions=None):
        self.component, self.io, self.given = component, io, given or {}
        self.positions = positions or Positions({"input": io.get("position_ids_input")})
        static = io.get("static_cache", {})
        past = io.get("kv_inputs", []) + static.get("key_cache_inputs", [])
        past += static.get("value_cache_inputs", [])
        present = io.get("kv_outputs", []) + static.get("key_cache_outputs", [])
        present += static.get("value_cache_outputs", [])
        states = {pair["input"]: pair["output"] for pair in io.get("state_pairs", [])}
        self.present = {**dict(zip(past, present, strict=True)), **states}
        is_buffer = io.get("kv_update", "append") != "append"
        self.caches = {port: component.zeros(port, buffer if is_buffer else 0) for port in self.present}
        self.length = 0

    def feed(self, rows):
        """Token ids [n], or embeddings [1, n, size], behind those before; all outputs."""
        io, is_embeds = self.io, "inputs_embeds_input" in self.io
        count = rows.shape[1] if is_embeds else len(rows)
        total = self.length + count
        static = io.get("static_cache", {})
        inputs = {
            io["inputs_embeds_input" if is_embeds else "token_input"]: rows if is_embeds else [rows],
            io.get("attention_mask_input"): np.ones((1, total)),
            self.positions.input: self.positions.between(self.length, total),
            static.get("write_indices_input"): [self.length],
            static.get("kv_sequence_length_input"): [total],
            **self.given,
            **self.caches,
        }
        for port, optional in io.get("optional_inputs", {}).items():
            if port not in inputs:
                inputs[port] = self.absent(optional["absent"], inputs)
        outputs = self.component.run(inputs)
        self.caches = {past: outputs[present] for past, present in self.present.items()}
        self.length = total
        return outputs

    def absent(self, value, inputs):
        """Zeros; a dim that is a symbol is as long as where another input has it."""
        assert value["kind"] == "zeros"
        sizes = {}
        for port in self.component.inputs.keys() & inputs.keys():
            sizes.update(zip(self.component.inputs[port].shape, np.shape(inputs[port])))
        return np.zeros([dim if isinstance(dim, int) else sizes[dim] for dim in value["shape"]])

    def choice(self, outputs):
        return int(outputs[self.io["logits_output"]][0, -1].argmax())


class Positions:
    """A `positions` block: [1, n], or on three axes [3, 1, n]. Those of the first tokens may be
    given, `first` [axes, n]; without any, tokens are counted on each axis."""

    def __init__(self, block, given=None):
        self.input = block["input"]
        self.rank = block.get("rank", 1)
        self.continuation = block.get("continuation", "linear_increment")
        self.first = np.zeros((self.rank, 0), int) if given is None else given.reshape(self.rank, -1)

    def between(self, start, end):
        given = self.first.shape[1]
        axes = self.first
        if end > given:
            last = self.first[:, -1:] if given else np.full((self.rank, 1), -1)
            if self.continuation != "linear_increment" and given:
                # carry_max, from_grid: behind the largest position of all.
                last = np.full_like(last, self.first.max())
            axes = np.concatenate([axes, last + np.arange(1, end - given + 1)], axis=1)
        axes = axes[:, start:end]
        return axes if self.rank == 1 else axes[:, np.newaxis]


class Values:
    """What is at the addresses `component.port` of a package: the host has given it, or a component
    makes it when another one reads it."""

    def __init__(self, folder, pipeline, case):
        models = pipeline["models"]
        self.components = {name: Component(folder / model["filename"]) for name, model in models.items()}
        self.edges = {edge["to"]: edge["from"] for edge in pipeline.get("dataflow", [])}
        self.phases = pipeline.get("phases", {})
        self.at = {address: values_of(case, address) for address in case.get("inputs", {})}
        self.present = {address.split(".")[0] for address in self.at}
        self.done = set()

    def read(self, name, port):
        """What an input of a component gets, None if nothing."""
        address = f"{name}.{port}"
        source = self.edges.get(address)
        if address not in self.at and source:
            self.run(source.split(".")[0])
            return self.at.get(source)
        return self.at.get(address)

    def inputs(self, name):
        read = {port: self.read(name, port) for port in self.components[name].inputs}
        return {port: value for port, value in read.items() if value is not None}

    def run(self, name):
        """Once, and not if its modality is absent."""
        is_absent = "when_present" in self.phases.get(name, {}) and name not in self.present
        if name not in self.done and not is_absent:
            self.done.add(name)
            self.put(name, self.components[name].run(self.inputs(name)))

    def put(self, name, values):
        self.done.add(name)
        self.at.update((f"{name}.{port}", value) for port, value in values.items())


def edge_to(pipeline, component, port):
    """The address of what a dataflow edge brings to a port."""
    return next((edge["from"] for edge in pipeline["dataflow"] if edge["to"] == f"{component}.{port}"), None)


def autoregressive(decoder, case):
    tokens, new = [], case["prompt"]
    while len(tokens) < len(case["tokens"]):
        new = [decoder.choice(decoder.feed(new))]
        tokens += new
    return {"tokens": tokens}


def one_decoder(folder, metadata, case):
    """A package that is one model."""
    model = metadata["model"]
    buffer = model.get("max_sequence_length", 0)
    return autoregressive(Decoder(Component(folder / "model.onnx"), model["io"], buffer), case)


def genai_names(config, given):
    """The ports of genai_config.json, those that the graph has, as an `io` block."""
    names = {**config.get("inputs", {}), **config.get("outputs", {})}
    layers = range(config["num_hidden_layers"])

    def of_layers(kinds):
        return [names[f"{kind}_names"].replace("%d", str(layer)) for layer in layers for kind in kinds]

    io = {
        "token_input": names["input_ids"],
        "attention_mask_input": names.get("attention_mask", "attention_mask"),
        "position_ids_input": names.get("position_ids", "position_ids"),
        "logits_output": names["logits"],
        "kv_inputs": of_layers(["past_key", "past_value"]),
        "kv_outputs": of_layers(["present_key", "present_value"]),
    }
    cross = of_layers(["cross_past_key", "cross_past_value"]) if given else []
    return io, cross


def genai(folder, config, case):
    """A decoder, or an encoder whose keys and values the decoder gets in every step."""
    model = config["model"]
    given = []
    if "encoder" in model:
        encoder = model["encoder"]
        features = encoder["inputs"]["audio_features"]
        component = Component(folder / encoder["filename"])
        made = component.run({features: values_of(case, f"encoder.{features}")})
        kinds = ("cross_present_key_names", "cross_present_value_names")
        patterns = [encoder["outputs"][kind] for kind in kinds]
        layers = range(model["decoder"]["num_hidden_layers"])
        given = [made[pattern.replace("%d", str(layer))] for layer in layers for pattern in patterns]
    io, cross = genai_names(model["decoder"], given)
    component = Component(folder / model["decoder"]["filename"])
    # Caches that are shared have the same values as those that grow.
    return autoregressive(Decoder(component, io, given=dict(zip(cross, given, strict=True))), case)


def nested(folder, metadata, case):
    """A frame: the outer decoder's token, and a code for each group of the inner one, which reads
    the outer one's state first and then its own embedding of the code before. A pre-embedder makes
    what the outer decoder reads next: of the token, and the codes behind the first."""
    pipeline = metadata["pipeline"]
    frames, sound = (stage["strategy"] for stage in pipeline["strategy"]["stages"])
    components = {name: Component(folder / model["filename"]) for name, model in pipeline["models"].items()}
    ios = {name: model.get("io", {}) for name, model in pipeline["models"].items()}
    outer_name, inner_name = frames["outer"], frames["inner"]
    outer = Decoder(components[outer_name], ios[outer_name])
    state = edge_to(pipeline, inner_name, ios[inner_name]["inputs_embeds_input"]).split(".")[1]

    pre, prefill = frames.get("pre_embedder"), frames.get("prefill_embedder")
    texts = []
    if prefill:
        made = components[prefill["component"]].run({prefill["prompt_input"]: [case["prompt"]]})
        rows, trailing = made[prefill["prefill_output"]], made[prefill["trailing_output"]]
        texts = [trailing[:, at : at + 1] for at in range(trailing.shape[1])]
    else:
        rows = case["prompt"]

    def embedded(codes):
        component = components[pre["component"]]
        text = texts.pop(0) if texts else np.zeros((1, 1, 2))
        inputs = {pre["frame_codes_input"]: [codes], pre["text_embed_input"]: text}
        (output,) = component.outputs
        return component.run(inputs)[output]

    if pre and not prefill:
        rows = embedded([0] * frames["num_code_groups"])
    tokens, codes = [], []
    for _ in range(frames["max_tokens"]):
        outputs = outer.feed(rows)
        tokens.append(outer.choice(outputs))
        inner, row, frame = Decoder(components[inner_name], ios[inner_name]), outputs[state][:, -1:], []
        for _ in range(frames["num_code_groups"]):
            outputs = inner.feed(row)
            frame.append(inner.choice(outputs))
            row = outputs[frames["inner_embedding_output"]][:, -1:]
        codes.append(frame)
        rows = embedded([tokens[-1], *frame[1:]]) if pre else tokens[-1:]
    vocoder = components[sound["model"]]
    (port,), (output,) = vocoder.inputs, vocoder.outputs
    values = {f"{sound['model']}.{output}": vocoder.run({port: [codes]})[output]}
    return {"tokens": tokens, "codes": codes, "values": values}


def staged(folder, metadata, case):
    """Stages in their order, and in the end whatever has not run."""
    pipeline = metadata["pipeline"]
    strategy = pipeline.get("strategy", {"kind": "autoregressive"})
    stages = [stage["strategy"] for stage in strategy.get("stages", [])] or [strategy]
    values, found = Values(folder, pipeline, case), {}
    for stage in stages:
        if stage["kind"] == "iterative":
            if stage.get("scheduler_config", {}).get("kind") == "masked_diffusion":
                found["states"] = masks(values, stage, case)
            else:
                iterative(values, stage)
        elif stage["kind"] == "autoregressive":
            found["tokens"] = decode(values, stage, pipeline, case)
        else:
            values.run(stage["model"])
    for name in values.components:
        values.run(name)
    return {**found, "values": values.at}


def decode(values, strategy, pipeline, case):
    decoders = [name for name, model in pipeline["models"].items() if model.get("type") == "decoder"]
    name = strategy.get("decoder", decoders[0])
    io, given = pipeline["models"][name]["io"], values.inputs(name)
    block = pipeline.get("positions")
    positions = Positions(block, given.pop(block["input"], None)) if block else None
    decoder = Decoder(values.components[name], io, given=given, positions=positions)
    tokens = autoregressive(decoder, case)["tokens"]
    values.put(name, {"output_ids": np.array([tokens])})
    return tokens


def iterative(values, strategy):
    """States go from outputs of the denoiser to its inputs; with a scheduler, the denoiser's output
    is the velocity of a flow, and what the state moves by is a step of Euler's method."""
    name, timestep = strategy["denoiser"], strategy["timestep_input"]
    denoiser = values.components[name]
    own = {}
    for port in denoiser.inputs:
        source = values.edges.get(f"{name}.{port}", "")
        if source.split(".")[0] == name:
            own[port] = source.split(".")[1]
    states = {port: output for port, output in own.items() if output in denoiser.outputs}
    # Inputs that get the state as the step begins with it.
    copies = {port: state for port, state in own.items() if state in denoiser.inputs}
    ports = denoiser.inputs.keys() - copies.keys() - {timestep}
    inputs = {port: values.read(name, port) for port in ports}

    def run(time, changed=None):
        copied = {port: inputs[state] for port, state in copies.items()}
        return denoiser.run({**inputs, **copied, timestep: time, **(changed or {})})

    scheduler, steps = strategy.get("scheduler_config"), strategy["num_steps"]
    if scheduler:
        assert scheduler["kind"] == "flow_matching"
        # Esser et al., arXiv:2403.03206, section 5.3.2: the shift of a schedule.
        times = np.linspace(1, 1 / 1000, steps)
        times = scheduler["shift"] * times / (1 + (scheduler["shift"] - 1) * times)
        sigmas = [*times, 0.0]
        conditioning = strategy["cfg_conditioning_input"]
        without = {conditioning: np.zeros_like(inputs[conditioning])}
        ((port, output),) = states.items()
        for now, after in zip(sigmas, sigmas[1:]):
            conditioned, free = (run([1000 * now], changed)[output] for changed in (None, without))
            inputs[port] = inputs[port] + (after - now) * (
                free + strategy["guidance_scale"] * (conditioned - free)
            )
    else:
        # Steps are counted where the package lists no timesteps.
        for time in strategy.get("timesteps", range(steps))[:steps]:
            time = np.reshape(time, denoiser.inputs[timestep].shape)
            outputs = run(time)
            inputs.update((port, outputs[output]) for port, output in states.items())
    values.put(name, {port: inputs[port] for port in states})


def masks(values, strategy, case):
    """The tokens after each step of the algorithm that masked_diffusion.py has written down, asking
    the denoiser for logits."""
    scheduler, name = strategy["scheduler_config"], strategy["denoiser"]
    denoiser = values.components[name]
    (port,), (output,) = denoiser.inputs, denoiser.outputs
    assert (scheduler["mask_token_id"], case["seed"]) == (masked_diffusion.MASK, masked_diffusion.SEED)
    masked_diffusion.logits = lambda ids: denoiser.run({port: [ids]})[output][0].tolist()
    states = masked_diffusion.sample(
        values.read(name, port).ravel().tolist(),
        strategy["num_steps"],
        scheduler["temperature"],
        scheduler.get("block_length"),
        scheduler["remasking"],
        strategy["guidance_scale"],
    )
    values.put(name, {port: [states[-1]]})
    return states


def hugging_face(folder, config, case):
    """Optimum's exports: an encoder and a decoder, embeddings among which rows of a picture take the
    places of its tokens, or a decoder alone. The decoder is one graph with a branch for when there is a
    cache, or two, of which the second takes a token at a time; or one without a cache, which
    reads all tokens in each step. What it has made of the encoder's states in the first pass is held."""

    def component(name):
        return Component(folder / name) if (folder / name).exists() else None

    encoder, embedding = component("encoder_model.onnx"), component("embed_tokens.onnx")
    merged = component("decoder_model_merged.onnx")
    first = merged or component("decoder_model.onnx")
    later = merged or component("decoder_with_past_model.onnx")
    given = {}
    if encoder:
        ids = values_of(case, "encoder.input_ids")
        mask = np.ones_like(ids)
        made = encoder.run({"input_ids": ids, "attention_mask": mask})
        given = {"encoder_hidden_states": made["last_hidden_state"], "encoder_attention_mask": mask}
    pictures = np.zeros((0, 1))
    if "vision.pixel_values" in case.get("inputs", {}):
        pixels = {"pixel_values": values_of(case, "vision.pixel_values")}
        pictures = component("vision_encoder.onnx").run(pixels)["image_features"]

    tokens, past, length, new = [], {}, 0, case["prompt"]
    while len(tokens) < len(case["tokens"]):
        decoder = later if past else first
        total = length + len(new)
        inputs = {
            "input_ids": [new],
            "attention_mask": np.ones((1, total)),
            "position_ids": [np.arange(length, total)],
            "use_cache_branch": [bool(past)],
            **given,
        }
        if embedding:
            inputs["inputs_embeds"] = embedding.run({"input_ids": [new]})["inputs_embeds"]
            is_picture = np.array(new) == config["image_token_index"]
            if len(pictures):
                inputs["inputs_embeds"][0, is_picture] = pictures[: is_picture.sum()]
                pictures = pictures[is_picture.sum() :]
        for port in decoder.inputs:
            if port.startswith("past_key_values."):
                inputs[port] = past[port] if past else decoder.zeros(port)
        outputs = decoder.run(inputs)
        for port in later.inputs if later else []:
            is_held = ".encoder." in port and past.get(port) is not None
            if port.startswith("past_key_values.") and not is_held:
                past[port] = outputs[port.replace("past_key_values.", "present.")]
        length = total if later else 0
        tokens.append(int(outputs["logits"][0, -1].argmax()))
        new = tokens[-1:] if later else case["prompt"] + tokens
    return {"tokens": tokens}


def values_of(case, address):
    tensor = case["inputs"][address]
    return np.reshape(tensor["values"], tensor["shape"])


def reader(folder):
    """What a folder's format says, and the function that runs it."""
    for name, run in [("genai_config.json", genai), ("config.json", hugging_face)]:
        if (folder / name).exists():
            return json.loads((folder / name).read_text()), run
    metadata = yaml.safe_load((folder / "inference_metadata.yaml").read_text())
    if "pipeline" not in metadata:
        return metadata, one_decoder
    stages = metadata["pipeline"].get("strategy", {}).get("stages", [])
    is_nested = any(stage["strategy"]["kind"] == "nested_autoregressive" for stage in stages)
    return metadata, nested if is_nested else staged


def check(folder):
    metadata, run = reader(folder)
    for case in json.loads((folder / "cases.json").read_text()):
        found = run(folder, metadata, case)
        for part in ("tokens", "codes", "states"):
            if found.get(part) != case.get(part):
                sys.exit(f"{folder.name}: {part} {found.get(part)}, expected {case.get(part)}")
        for address, expected in case.get("values", {}).items():
            array = np.ravel(found["values"][address])
            if not np.allclose(array, expected, rtol=0, atol=1e-5):
                sys.exit(f"{folder.name}: {address} {array}, expected {expected}")
    print(f"{folder.name}: as expected")


def main():
    errors_only = 3
    onnxruntime.set_default_logger_severity(errors_only)
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/cases.json"))
    if not folders:
        sys.exit(f"no fixtures in {sys.argv[1]}; see the head of this script")
    for folder in folders:
        check(folder)


main()
