//! Writes a package of another format as `inference_metadata.yaml`.

use serde_json::{Map, Value, json};

use crate::component::shown;
use crate::generation::SAMPLING_OPTIONS;
use crate::runtime::OrtSettings;

use super::declaration::{
    Address, ComponentDeclaration, Declaration, GenerationDefaults, IoDeclaration, KvUpdate, OptionalInput,
    Said, SequenceSource, StrategyKind, ZeroDim,
};
use super::media_json;
use super::readout::Readout;

/// What a package has beside its declaration.
#[derive(Default)]
pub(super) struct Beside<'p> {
    pub readout: Option<&'p Readout>,
    pub head: Option<HeadSection>,
    /// Why a head that guesses is not written, if there is one.
    pub no_head: Option<String>,
}

/// A head that guesses tokens: its component, and what the section `speculative` says of it.
pub(super) struct HeadSection {
    pub component: ComponentDeclaration,
    pub fields: Map<String, Value>,
}

/// The document, of a declaration whose ports are bound. Strategies are those that formats other
/// than this one can say.
pub(super) fn write(declaration: &Declaration, beside: &Beside<'_>, from: &str) -> String {
    let mut text = format!("# Written from {from}.\n");
    if let Some(why) = &beside.no_head {
        let why = why.replace(['\n', '\r'], " ");
        text.push_str(&format!("# Left out: the head that guesses tokens. {why}\n"));
    }
    let head = beside.head.iter().map(|head| &head.component);
    for component in declaration.components.iter().chain(head) {
        if component.ort != OrtSettings::default() {
            let name = shown(&component.name);
            text.push_str(&format!(
                "# Left out: session_options of \"{name}\", which this format has no place for.\n"
            ));
        }
    }
    let document = document(declaration, beside);
    write_map(&document, 0, &mut text);
    text
}

fn document(declaration: &Declaration, beside: &Beside<'_>) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("schema_version".into(), json!("v1"));
    if let Some(length) = declaration.context_length {
        document.insert("model".into(), json!({ "max_sequence_length": length }));
    }
    let components = &declaration.components;
    let head = beside.head.iter().map(|head| &head.component);
    let models = components.iter().chain(head);
    let models = models.map(|one| (one.name.clone(), component(one)));
    let mut pipeline = Map::new();
    pipeline.insert("models".into(), Value::Object(models.collect()));
    let edges = declaration
        .edges
        .iter()
        .map(|edge| json!({ "from": address(&edge.from.value), "to": address(&edge.to.value) }));
    insert_list(&mut pipeline, "dataflow", edges.collect());
    pipeline.insert("strategy".into(), strategy(declaration));
    let phases = components
        .iter()
        .filter_map(|one| Some((one.name.clone(), phase(one)?)));
    insert_map(&mut pipeline, "phases", phases.collect());
    if let Some(continuation) = declaration.coordinates {
        let positions = json!({ "generation": "processor_coordinates", "continuation": continuation.name() });
        pipeline.insert("positions".into(), positions);
    } else if declaration.linear_positions {
        pipeline.insert("positions".into(), json!({ "generation": "linear" }));
    }
    if let Some(vision) = &declaration.media.vision {
        pipeline.insert("vision".into(), media_json::placeholders(&vision.value));
    }
    document.insert("pipeline".into(), Value::Object(pipeline));
    if let Some(head) = &beside.head {
        insert_map(&mut document, "speculative", head.fields.clone());
    }
    match beside.readout {
        None => {}
        Some(Readout::Embedding {
            pooling,
            normalize,
            max_tokens,
        }) => {
            let mut fields = Map::new();
            fields.insert("pooling".into(), json!(pooling.name()));
            fields.insert("normalize".into(), json!(normalize));
            if let Some(most) = max_tokens {
                fields.insert("max_seq_length".into(), json!(most));
            }
            insert_map(&mut document, "embedding", fields);
        }
        Some(Readout::Classes { labels, activation }) => {
            let mut fields = Map::new();
            insert_list(
                &mut fields,
                "labels",
                labels.iter().map(|label| json!(label)).collect(),
            );
            fields.insert("activation".into(), json!(activation.name()));
            insert_map(&mut document, "classifier", fields);
        }
    }
    let mut preprocessing = Map::new();
    if let Some(image) = &declaration.media.image {
        preprocessing.insert("image".into(), media_json::image_program(&image.program));
    }
    if let Some(audio) = &declaration.media.audio {
        preprocessing.insert("audio".into(), media_json::audio_program(&audio.program));
    }
    insert_map(&mut document, "preprocessing", preprocessing);
    let mut tokens = Map::new();
    let eos = declaration.eos_token_ids.iter().map(|said| json!(said.value));
    insert_list(&mut tokens, "eos_token_id", eos.collect());
    tokens.extend(
        declaration
            .token_roles
            .iter()
            .map(|(role, id)| ((*role).to_owned(), json!(id))),
    );
    insert_map(&mut document, "tokens", tokens);
    insert_map(&mut document, "generation", generation(&declaration.generation));
    document
}

fn address(address: &Address) -> String {
    format!("{}.{}", address.component, address.port)
}

fn component(component: &ComponentDeclaration) -> Value {
    let mut fields = Map::new();
    fields.insert("filename".into(), json!(component.file.value));
    if !component.component_type.is_empty() {
        fields.insert("type".into(), json!(component.component_type));
    }
    if let Some(tokenizer) = &component.tokenizer {
        fields.insert("tokenizer".into(), json!(tokenizer.value));
    }
    insert_map(&mut fields, "io", io(&component.io));
    Value::Object(fields)
}

fn io(io: &IoDeclaration) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(source) = &io.sequence_source {
        let source = match source.value {
            SequenceSource::TokenIds => "token_ids",
            SequenceSource::InputsEmbeds => "inputs_embeds",
        };
        fields.insert("sequence_source".into(), json!(source));
    }
    for (name, said) in [
        ("token_input", &io.token_input),
        ("inputs_embeds_input", &io.inputs_embeds_input),
        ("attention_mask_input", &io.attention_mask_input),
        ("position_ids_input", &io.position_ids_input),
        ("logits_output", &io.logits_output),
        ("hidden_output", &io.hidden_output),
        ("encoder_hidden_states_input", &io.encoder_hidden_states_input),
        ("audio_features_input", &io.audio_features_input),
        ("cache_branch_input", &io.cache_branch_input),
    ] {
        if let Some(said) = said {
            fields.insert(name.into(), json!(said.value));
        }
    }
    if io.kv_update == KvUpdate::SharedBuffer {
        fields.insert("kv_update".into(), json!("shared_buffer"));
    }
    for (name, size) in [("kv_heads", io.kv_heads), ("kv_head_size", io.kv_head_size)] {
        if let Some(size) = size {
            fields.insert(name.into(), json!(size));
        }
    }
    for (name, list) in [
        ("kv_inputs", &io.kv_inputs),
        ("kv_outputs", &io.kv_outputs),
        ("cross_kv_inputs", &io.cross_kv_inputs),
        ("cross_kv_outputs", &io.cross_kv_outputs),
        ("ones_inputs", &io.ones_inputs),
    ] {
        insert_list(&mut fields, name, names(list));
    }
    let pairs = io.state_pairs.iter();
    let pairs = pairs.map(|pair| json!({ "input": pair.input.value, "output": pair.output.value }));
    insert_list(&mut fields, "state_pairs", pairs.collect());
    let lengths = io.lengths.iter();
    let lengths = lengths.map(|length| (length.port.value.clone(), json!(length.of.name())));
    insert_map(&mut fields, "length_inputs", lengths.collect());
    let optional = io.optional_inputs.iter();
    let optional = optional.map(|one| (one.port.value.clone(), optional_input(one)));
    insert_map(&mut fields, "optional_inputs", optional.collect());
    let merges = io.merges.iter();
    let merges =
        merges.map(|merge| json!({ "token_id": merge.token.value, "features": address(&merge.features) }));
    insert_list(&mut fields, "merges", merges.collect());
    fields
}

fn names(list: &[Said<String>]) -> Vec<Value> {
    list.iter().map(|said| json!(said.value)).collect()
}

fn optional_input(input: &OptionalInput) -> Value {
    let shape = input.shape.iter().map(|dim| match dim {
        ZeroDim::Fixed(size) => json!(size),
        ZeroDim::Symbol(name) => json!(name),
    });
    let mut fields = Map::new();
    fields.insert("presence".into(), json!(input.modality));
    let absent = json!({ "kind": "zeros", "shape": shape.collect::<Vec<_>>() });
    fields.insert("absent".into(), absent);
    if input.first_pass_only {
        fields.insert("first_pass_only".into(), json!(true));
    }
    Value::Object(fields)
}

fn strategy(declaration: &Declaration) -> Value {
    let strategy = &declaration.strategy;
    let mut fields = Map::new();
    let kind = match strategy.kind {
        StrategyKind::SinglePass => "single_pass",
        _ => "autoregressive",
    };
    fields.insert("kind".into(), json!(kind));
    for (name, said) in [
        ("decoder", &strategy.decoder),
        ("first_pass", &strategy.first_pass),
        ("model", &strategy.model),
    ] {
        if let Some(said) = said {
            fields.insert(name.into(), json!(said.value));
        }
    }
    if let Some(tokens) = strategy.max_tokens {
        fields.insert("max_tokens".into(), json!(tokens));
    }
    Value::Object(fields)
}

fn phase(component: &ComponentDeclaration) -> Option<Value> {
    let mut fields = Map::new();
    if let Some(phase) = &component.phase {
        fields.insert("run_on".into(), json!(phase.value.name()));
    }
    if let Some(modality) = &component.when_present {
        fields.insert("when_present".into(), json!(modality.value));
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

fn generation(defaults: &GenerationDefaults) -> Map<String, Value> {
    let mut sampling = defaults.sampling.clone();
    let mut all = Map::new();
    for option in SAMPLING_OPTIONS {
        if let Some(value) = option.to_json(&mut sampling) {
            let name = match option.name {
                "bad_words" => "bad_words_ids",
                name => name,
            };
            all.insert(name.to_owned(), value);
        }
    }
    if let Some(length) = defaults.max_length {
        all.insert("max_length".to_owned(), json!(length));
    }
    if let Some(seed) = defaults.seed {
        all.insert("seed".to_owned(), json!(seed));
    }
    all
}

fn insert_list(fields: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        fields.insert(name.to_owned(), Value::Array(list));
    }
}

fn insert_map(fields: &mut Map<String, Value>, name: &str, map: Map<String, Value>) {
    if !map.is_empty() {
        fields.insert(name.to_owned(), Value::Object(map));
    }
}

/// Mappings and lists in block style, empty lists and scalars in the line.
fn write_map(map: &Map<String, Value>, depth: usize, text: &mut String) {
    for (key, value) in map {
        text.push_str(&"  ".repeat(depth));
        text.push_str(&scalar(key));
        text.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                text.push('\n');
                write_map(map, depth + 1, text);
            }
            Value::Array(list) if list.len() > 4 || list.iter().any(Value::is_object) => {
                text.push('\n');
                for item in list {
                    text.push_str(&"  ".repeat(depth + 1));
                    text.push_str("- ");
                    text.push_str(&in_line(item));
                    text.push('\n');
                }
            }
            other => {
                text.push(' ');
                text.push_str(&in_line(other));
                text.push('\n');
            }
        }
    }
}

/// A value in flow style.
fn in_line(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(list) => format!("[{}]", list.iter().map(in_line).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), in_line(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A text as it is, or in quotes where YAML would take it for something else.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '/' | '-'))
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    match plain {
        true => text.to_owned(),
        // Escapes of JSON are escapes of YAML.
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_yaml_would_misread_are_quoted() {
        for (text, written) in [
            ("past_key_values.0.key", "past_key_values.0.key"),
            ("onnx/model.onnx", "onnx/model.onnx"),
            ("no", "\"no\""),
            ("", "\"\""),
            ("0x1f", "\"0x1f\""),
            ("a: b", "\"a: b\""),
            ("/model/Add", "\"/model/Add\""),
            ("a\n\"b\"", "\"a\\n\\\"b\\\"\""),
        ] {
            assert_eq!(scalar(text), written);
        }
    }
}
