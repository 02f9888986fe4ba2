//! What a `genai_config.json` calls the ports of its components, or does not: then they have the names
//! that onnxruntime-genai has for them.

use super::declaration::{LengthOf, Said};
use super::document::{Cursor, Fields};
use super::io_bindings::MAX_CACHE_DIM;
use super::{Location, PackageError};

/// A port's name, perhaps with `%d` for the layer.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub text: String,
    pub at: Location,
    /// Whether the file says it: else it is a default, and no graph must have it.
    pub said: bool,
}

impl Name {
    pub fn of_layer(&self, layer: u64) -> String {
        self.text.replacen("%d", &layer.to_string(), 1)
    }

    /// The layer that a port of this name is of, if the pattern is the port's.
    pub fn layer_of(&self, port: &str) -> Option<u64> {
        let (before, after) = self.text.split_once("%d")?;
        let layer = port.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?;
        // As a number is written: no sign, no leading zeros.
        (self.of_layer(layer) == port).then_some(layer)
    }

    pub fn is_pattern(&self) -> bool {
        self.text.contains("%d")
    }

    pub fn as_said(&self) -> Said<String> {
        self.with(self.text.clone())
    }

    pub fn with(&self, value: String) -> Said<String> {
        let at = self.at.clone();
        Said { value, at }
    }
}

pub(super) type MaybeName = Option<Name>;

/// What `decoder` says of its ports.
#[derive(Clone, Debug)]
pub(super) struct DecoderNames {
    pub layers: Option<u64>,
    pub hidden_size: Option<u64>,
    /// Of caches.
    pub heads: Option<u64>,
    pub head_size: Option<u64>,
    pub input_ids: MaybeName,
    pub inputs_embeds: MaybeName,
    pub attention_mask: MaybeName,
    pub position_ids: MaybeName,
    /// Past and present.
    pub keys: (MaybeName, MaybeName),
    pub values: (MaybeName, MaybeName),
    /// Keys and values in one tensor.
    pub combined: MaybeName,
    pub cross_keys: MaybeName,
    pub cross_values: MaybeName,
    /// States of a fixed size: before and after.
    pub states: Vec<(MaybeName, MaybeName)>,
    pub past_sequence_length: MaybeName,
    pub current_sequence_length: MaybeName,
    pub lengths: Vec<(LengthOf, MaybeName)>,
    pub encoder_hidden_states: MaybeName,
    pub encoder_attention_mask: MaybeName,
    pub per_layer_inputs: MaybeName,
    /// Inputs that onnxruntime-genai feeds and this library does not.
    pub not_fed: Vec<Name>,
    pub logits: MaybeName,
}

#[derive(Debug)]
pub(super) struct EncoderNames {
    pub layers: Option<u64>,
    pub others: Vec<Name>,
    pub audio_features: MaybeName,
    pub attention_mask: MaybeName,
    pub hidden_states: MaybeName,
    pub encoder_outputs: MaybeName,
    pub cross_keys: MaybeName,
    pub cross_values: MaybeName,
}

#[derive(Debug)]
pub(super) struct EmbeddingNames {
    pub input_ids: MaybeName,
    pub image_features: MaybeName,
    pub audio_features: MaybeName,
    pub embeddings: MaybeName,
    pub per_layer_inputs: MaybeName,
}

/// Sizes of a decoder that its ports may leave open.
pub(super) struct Sizes {
    hidden: Option<u64>,
    heads: Option<u64>,
    head: Option<u64>,
}

impl Sizes {
    pub fn read(decoder: &mut Fields<'_>) -> Result<Self, PackageError> {
        // 0 is what the original has for nothing.
        let mut size = |name: &'static str| {
            let at = decoder.get(name);
            let size = at.map(|at| at.count_up_to(0, MAX_CACHE_DIM)).transpose()?;
            Ok::<_, PackageError>(size.filter(|&size| size > 0))
        };
        let attention = size("num_attention_heads")?;
        Ok(Sizes {
            hidden: size("hidden_size")?,
            heads: size("num_key_value_heads")?.or(attention),
            head: size("head_size")?,
        })
    }
}

pub(super) fn decoder_names(
    layers: Option<u64>,
    sizes: Sizes,
    mut inputs: Names<'_>,
    mut outputs: Names<'_>,
) -> Result<DecoderNames, PackageError> {
    let names = DecoderNames {
        layers,
        hidden_size: sizes.hidden,
        heads: sizes.heads,
        head_size: sizes.head,
        input_ids: inputs.name("input_ids", "input_ids")?,
        inputs_embeds: inputs.name("inputs_embeds", "inputs_embeds")?,
        attention_mask: inputs.name("attention_mask", "attention_mask")?,
        position_ids: inputs.name("position_ids", "position_ids")?,
        keys: (
            inputs.name("past_key_names", "past_key_values.%d.key")?,
            outputs.name("present_key_names", "present.%d.key")?,
        ),
        values: (
            inputs.name("past_value_names", "past_key_values.%d.value")?,
            outputs.name("present_value_names", "present.%d.value")?,
        ),
        combined: inputs.name("past_names", "")?,
        cross_keys: inputs.name("cross_past_key_names", "")?,
        cross_values: inputs.name("cross_past_value_names", "")?,
        states: vec![
            (
                inputs.name("past_conv_names", "past_key_values.%d.conv_state")?,
                outputs.name("present_conv_names", "present.%d.conv_state")?,
            ),
            (
                inputs.name("past_recurrent_names", "past_key_values.%d.recurrent_state")?,
                outputs.name("present_recurrent_names", "present.%d.recurrent_state")?,
            ),
            (
                inputs.name("rnn_states_prev", "rnn_states_prev")?,
                outputs.name("rnn_states", "rnn_states")?,
            ),
        ],
        past_sequence_length: inputs.name("past_sequence_length", "past_sequence_length")?,
        current_sequence_length: inputs.name("current_sequence_length", "current_sequence_length")?,
        lengths: vec![
            (
                LengthOf::Past,
                inputs.name("past_key_values_length", "past_key_values_length")?,
            ),
            (
                LengthOf::Total,
                inputs.name("total_sequence_length", "total_sequence_length")?,
            ),
        ],
        encoder_hidden_states: inputs.name("encoder_hidden_states", "encoder_hidden_states")?,
        encoder_attention_mask: inputs.name("encoder_attention_mask", "encoder_attention_mask")?,
        per_layer_inputs: inputs.name("per_layer_inputs", "")?,
        not_fed: inputs.all(&[
            "cache_indirection",
            "cumulative_sequence_lengths",
            "past_sequence_lengths",
            "block_table",
            "block_table_windowed",
            "attention_metadata",
            "state_update_capture_count",
            "state_update_active",
        ])?,
        logits: outputs.name("logits", "logits")?,
    };
    // Of speculation, of quantised caches and of transducers; what a graph has of them is asked of
    // its ports.
    inputs.skip(&[
        "past_key_scale_names",
        "past_value_scale_names",
        "past_ple_token_names",
        "past_ple_conv_names",
        "past_indexer_names",
        "hidden_states",
        "targets",
        "targets_length",
        "lstm_hidden_state",
        "lstm_cell_state",
        "logits_indices",
    ]);
    inputs.finish();
    outputs.skip(&[
        "present_names",
        "present_key_scale_names",
        "present_value_scale_names",
        "present_ple_token_names",
        "present_ple_conv_names",
        "present_indexer_names",
        "output_cross_qk_names",
        "state_update_conv_value_names",
        "state_update_recurrent_capsule_names",
        "hidden_states",
        "aux_hidden_states",
        "outputs",
        "outputs_length",
        "lstm_hidden_state",
        "lstm_cell_state",
    ]);
    outputs.finish();
    Ok(names)
}

/// A mapping from what a port is for to its name; where it says nothing, names have defaults.
pub(super) struct Names<'d> {
    fields: Option<Fields<'d>>,
    /// Of the mapping, or of the component without one.
    at: Location,
}

impl<'d> Names<'d> {
    pub fn of(
        component: &mut Fields<'d>,
        mapping: &'static str,
        at: &Cursor<'d>,
    ) -> Result<Self, PackageError> {
        match component.get(mapping) {
            Some(at) => Ok(Names {
                fields: Some(at.fields()?),
                at: at.location(),
            }),
            None => Ok(Names {
                fields: None,
                at: at.location(),
            }),
        }
    }

    /// The name of one port; an empty one is none.
    pub fn name(&mut self, key: &'static str, default: &str) -> Result<Option<Name>, PackageError> {
        let given = self.fields.as_mut().and_then(|fields| fields.get(key));
        let name = match given {
            Some(at) => Name {
                text: at.text()?.to_owned(),
                at: at.location(),
                said: true,
            },
            None => Name {
                text: default.to_owned(),
                at: self.at.clone(),
                said: false,
            },
        };
        Ok(Some(name).filter(|name| !name.text.is_empty()))
    }

    /// The names of ports that are called as their keys by default.
    pub fn all(&mut self, keys: &[&'static str]) -> Result<Vec<Name>, PackageError> {
        let mut names = Vec::new();
        for key in keys {
            names.extend(self.name(key, key)?);
        }
        Ok(names)
    }

    pub fn skip(&mut self, keys: &[&'static str]) {
        if let Some(fields) = &mut self.fields {
            fields.skip(keys);
        }
    }

    pub fn finish(self) {
        if let Some(fields) = self.fields {
            fields.finish();
        }
    }
}
