use super::declaration::{
    IoDeclaration, KvLayout, KvUpdate, LengthInput, LengthOf, MergeDeclaration, OptionalInput, Said,
    SequenceSource, StatePair, ZeroDim,
};
use super::document::{Cursor, Fields};
use super::metadata::{address, said};
use super::{PackageError, PackageErrorKind};

/// The most heads, and the largest, that a package may say a cache has.
pub(super) const MAX_CACHE_DIM: u64 = 1 << 20;

/// Reads an `io` section. What this version cannot feed is refused here, never ignored.
pub(super) fn read_io(at: &Cursor<'_>) -> Result<IoDeclaration, PackageError> {
    let mut fields = at.fields()?;
    let kv_update = match fields.get("kv_update") {
        Some(update) => update.one_of(&[
            ("append", KvUpdate::Append),
            ("shared_buffer", KvUpdate::SharedBuffer),
        ])?,
        None => KvUpdate::Append,
    };
    if let Some(ownership) = fields.get("kv_ownership")
        && ownership.one_of(&[("owned", false), ("shared", true)])?
    {
        return Err(ownership.unsupported("kv_ownership: shared"));
    }
    let kv_layout = fields.get("kv_layout").map(|at| read_layout(&at)).transpose()?;
    let size = |fields: &mut Fields<'_>, name| {
        let at = fields.get(name);
        at.map(|at| at.count_up_to(1, MAX_CACHE_DIM)).transpose()
    };
    let kv_heads = size(&mut fields, "kv_heads")?;
    let kv_head_size = size(&mut fields, "kv_head_size")?;
    let sequence_source = fields
        .get("sequence_source")
        .map(|source| {
            let known = [
                ("token_ids", SequenceSource::TokenIds),
                ("inputs_embeds", SequenceSource::InputsEmbeds),
            ];
            Ok::<_, PackageError>(Said {
                value: source.one_of(&known)?,
                at: source.location(),
            })
        })
        .transpose()?;
    let mut io = IoDeclaration {
        sequence_source,
        kv_layout: kv_layout.unwrap_or_default(),
        kv_update,
        kv_heads: kv_heads.and_then(|size| i64::try_from(size).ok()),
        kv_head_size: kv_head_size.and_then(|size| i64::try_from(size).ok()),
        ..IoDeclaration::default()
    };
    let one = |fields: &mut Fields<'_>, name| fields.get(name).map(said).transpose();
    io.token_input = one(&mut fields, "token_input")?;
    io.inputs_embeds_input = one(&mut fields, "inputs_embeds_input")?;
    io.attention_mask_input = one(&mut fields, "attention_mask_input")?;
    io.position_ids_input = one(&mut fields, "position_ids_input")?;
    io.logits_output = one(&mut fields, "logits_output")?;
    io.hidden_output = one(&mut fields, "hidden_output")?;
    io.encoder_hidden_states_input = one(&mut fields, "encoder_hidden_states_input")?;
    io.audio_features_input = one(&mut fields, "audio_features_input")?;
    let many = |fields: &mut Fields<'_>, name| match fields.get(name) {
        Some(list) => list
            .items()?
            .map(said)
            .collect::<Result<Vec<Said<String>>, PackageError>>(),
        None => Ok(Vec::new()),
    };
    io.kv_inputs = many(&mut fields, "kv_inputs")?;
    io.kv_outputs = many(&mut fields, "kv_outputs")?;
    // A component for the first pass has no past to read.
    if !io.kv_inputs.is_empty() {
        same_length(
            at,
            "kv_inputs",
            io.kv_inputs.len(),
            "kv_outputs",
            io.kv_outputs.len(),
        )?;
    }
    if let Some(cache) = fields.get("static_cache") {
        read_static_cache(&cache, &mut io)?;
    }
    io.cross_kv_inputs = many(&mut fields, "cross_kv_inputs")?;
    io.cross_kv_outputs = many(&mut fields, "cross_kv_outputs")?;
    if let Some(pairs) = fields.get("state_pairs") {
        for pair in pairs.items()? {
            io.state_pairs.push(read_state_pair(&pair)?);
        }
    }
    if let Some(optional) = fields.get("optional_inputs") {
        for (port, input) in optional.entries()? {
            io.optional_inputs.push(read_optional_input(port, &input)?);
        }
    }
    if let Some(lengths) = fields.get("length_inputs") {
        for (port, of) in lengths.entries()? {
            let known = [LengthOf::Past, LengthOf::Current, LengthOf::Total, LengthOf::Last];
            let known = known.map(|of| (of.name(), of));
            io.lengths.push(LengthInput {
                of: of.one_of(&known)?,
                port: Said {
                    value: port.to_owned(),
                    at: of.location(),
                },
            });
        }
    }
    io.ones_inputs = many(&mut fields, "ones_inputs")?;
    io.cache_branch_input = one(&mut fields, "cache_branch_input")?;
    if let Some(merges) = fields.get("merges") {
        for merge in merges.items()? {
            io.merges.push(read_merge(&merge)?);
        }
    }
    fields.finish();
    Ok(io)
}

fn same_length(
    at: &Cursor<'_>,
    first: &str,
    first_len: usize,
    second: &str,
    second_len: usize,
) -> Result<(), PackageError> {
    if first_len == second_len {
        return Ok(());
    }
    Err(at.invalid(format!(
        "{first} has {first_len} names and {second} has {second_len}; they are paired by position"
    )))
}

/// Caches that TensorScatter writes into: buffers, and where in them.
fn read_static_cache(at: &Cursor<'_>, io: &mut IoDeclaration) -> Result<(), PackageError> {
    if let Some(earlier) = io.kv_inputs.first() {
        return Err(at.invalid(format!(
            "the caches are kv_inputs too, at {}; say them once",
            earlier.at
        )));
    }
    let mut fields = at.fields()?;
    for (name, of) in [
        ("write_indices_input", LengthOf::Past),
        ("kv_sequence_length_input", LengthOf::Total),
    ] {
        let port = said(fields.required(name, "an input")?)?;
        io.lengths.push(LengthInput { port, of });
    }
    let mut list = |name, what| {
        let items = fields.required(name, what)?.items()?;
        items
            .map(said)
            .collect::<Result<Vec<Said<String>>, PackageError>>()
    };
    let inputs = [
        (
            "key_cache_inputs",
            list("key_cache_inputs", "the keys of each layer")?,
        ),
        (
            "value_cache_inputs",
            list("value_cache_inputs", "the values of each layer")?,
        ),
    ];
    let outputs = [
        (
            "key_cache_outputs",
            list("key_cache_outputs", "what becomes of the keys")?,
        ),
        (
            "value_cache_outputs",
            list("value_cache_outputs", "what becomes of the values")?,
        ),
    ];
    fields.finish();
    let layers = inputs[0].1.len();
    if layers == 0 {
        return Err(at.invalid("names no cache"));
    }
    for (name, list) in inputs.iter().chain(&outputs) {
        same_length(at, "key_cache_inputs", layers, name, list.len())?;
    }
    let [(_, keys), (_, values)] = inputs;
    io.kv_inputs = keys.into_iter().chain(values).collect();
    let [(_, keys), (_, values)] = outputs;
    io.kv_outputs = keys.into_iter().chain(values).collect();
    io.kv_update = KvUpdate::SharedBuffer;
    Ok(())
}

fn read_merge(at: &Cursor<'_>) -> Result<MergeDeclaration, PackageError> {
    let mut fields = at.fields()?;
    let token = fields.required("token_id", "the token whose embeddings are features")?;
    let features = fields.required("features", "who makes them, component.output")?;
    fields.finish();
    Ok(MergeDeclaration {
        token: Said {
            value: token.token_id()?,
            at: token.location(),
        },
        features: address(&features)?.value,
    })
}

fn read_layout(at: &Cursor<'_>) -> Result<KvLayout, PackageError> {
    if at.is_map() {
        let mut fields = at.fields()?;
        let strides_at = fields.required("strides", "[batch, heads, sequence, head size], in elements")?;
        fields.finish();
        let strides = strides_at
            .items()?
            .map(|stride| {
                let most = i64::MAX as u64;
                stride
                    .count_up_to(1, most)
                    .map(|stride| i64::try_from(stride).unwrap_or(i64::MAX))
            })
            .collect::<Result<Vec<i64>, PackageError>>()?;
        let strides = <[i64; 4]>::try_from(strides)
            .map_err(|_| strides_at.invalid("a cache has 4 strides: [batch, heads, sequence, head size]"))?;
        return Ok(KvLayout::Strides(strides));
    }
    at.one_of(&[
        ("head_major_bnsh", KvLayout::HeadMajor),
        ("seq_major_bsnh", KvLayout::SequenceMajor),
    ])
}

fn read_state_pair(at: &Cursor<'_>) -> Result<StatePair, PackageError> {
    let mut fields = at.fields()?;
    let input = said(fields.required("input", "the state's input")?)?;
    let output = said(fields.required("output", "the state's output")?)?;
    if let Some(init) = fields.get("init") {
        init.one_of(&[("zeros", ())])?;
    }
    if let Some(update) = fields.get("update") {
        update.one_of(&[("replace", ())])?;
    }
    fields.finish();
    Ok(StatePair { input, output })
}

fn read_optional_input(port: &str, at: &Cursor<'_>) -> Result<OptionalInput, PackageError> {
    let mut fields = at.fields()?;
    let modality = fields
        .required("presence", "the modality that brings it")?
        .text()?
        .to_owned();
    let absent = fields.required("absent", "what stands in for it: {kind: zeros, shape: [...]}")?;
    let first_pass_only = fields
        .get("first_pass_only")
        .map(|flag| flag.bool())
        .transpose()?;
    fields.finish();
    let mut fields = absent.fields()?;
    fields.required("kind", "zeros")?.one_of(&[("zeros", ())])?;
    let shape_at = fields.required("shape", "a list of sizes and dim names")?;
    fields.finish();
    let shape = shape_at
        .items()?
        .map(|dim| match dim.text() {
            Ok(name) => Ok(ZeroDim::Symbol(name.to_owned())),
            Err(_) => {
                let size = dim.count(0)?;
                i64::try_from(size).map(ZeroDim::Fixed).map_err(|_| {
                    dim.error(PackageErrorKind::WrongType {
                        found: size.to_string(),
                        expected: "a size below 2^63".to_owned(),
                    })
                })
            }
        })
        .collect::<Result<Vec<_>, PackageError>>()?;
    Ok(OptionalInput {
        port: Said {
            value: port.to_owned(),
            at: at.location(),
        },
        modality,
        shape,
        first_pass_only: first_pass_only.unwrap_or(false),
    })
}
