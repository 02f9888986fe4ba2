//! What tells one package from another, for states that belong to one.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use twox_hash::XxHash3_128;

use crate::component::{ComponentIo, ModelSource, open_regular};
use crate::package::{ModelOutline, PipelineSpec};

/// A package by what its components are, and what its runs go on by.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// For people.
    pub name: String,
    pub fingerprint: u128,
}

/// Bytes of a file that are looked at together.
const SAMPLE: usize = 4 << 10;
/// Places of a file that are looked at, evenly from its beginning to its end; a file that is not
/// larger than all of them is looked at as a whole.
const SAMPLES: u64 = 32;

impl Identity {
    /// Of components by name, each with what tells its model from others; and of what else a run
    /// goes on by, the package's tokenizer and its defaults.
    pub fn new(
        spec: &PipelineSpec,
        tokenizer: Option<&[u8]>,
        components: impl Iterator<Item = (String, u128)>,
    ) -> Self {
        let strategy = spec.strategy;
        let defaults = (&spec.eos_token_ids, spec.context_length, &spec.generation);
        let mut hashed = format!("{strategy} {defaults:?}").into_bytes();
        hashed.extend_from_slice(&tokenizer.map_or(0, XxHash3_128::oneshot).to_le_bytes());
        let mut names = Vec::new();
        for (name, model) in components {
            hashed.extend_from_slice(&(name.len() as u64).to_le_bytes());
            hashed.extend_from_slice(name.as_bytes());
            hashed.extend_from_slice(&model.to_le_bytes());
            names.push(name);
        }
        Identity {
            name: format!("the {strategy} package of {}", names.join(", ")),
            fingerprint: XxHash3_128::oneshot(&hashed),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No more of a name that may be anybody's than a message wants.
        let name: String = self.name.chars().filter(|c| !c.is_control()).take(200).collect();
        write!(f, "{name} [{:032x}]", self.fingerprint)
    }
}

/// What tells a model from others: the lengths of its files, and bytes from all over them. A few
/// hundred kilobytes are read of each, however large it is.
pub(super) fn of_model(source: &ModelSource) -> io::Result<u128> {
    let mut sampled = Vec::new();
    match source {
        ModelSource::File { path, .. } => {
            hash_file(path, &mut sampled)?;
            for file in ModelOutline::external_files(source)? {
                hash_file(&file, &mut sampled)?;
            }
        }
        ModelSource::Memory { model, external, .. } => {
            hash_sampled(&mut io::Cursor::new((**model).as_ref()), &mut sampled)?;
            let names = ModelOutline::external_names(source)?;
            let named = names
                .iter()
                .filter_map(|name| external.iter().find(|(known, _)| known == name));
            for (_, data) in named {
                hash_sampled(&mut io::Cursor::new((**data).as_ref()), &mut sampled)?;
            }
        }
    }
    Ok(XxHash3_128::oneshot(&sampled))
}

/// What tells a session of the host's from others: its ports.
pub(super) fn of_ports(io: &ComponentIo) -> u128 {
    XxHash3_128::oneshot(format!("{io:?}").as_bytes())
}

fn hash_file(path: &Path, sampled: &mut Vec<u8>) -> io::Result<()> {
    hash_sampled(&mut open_regular(path)?, sampled)
}

fn hash_sampled(reader: &mut (impl Read + Seek), sampled: &mut Vec<u8>) -> io::Result<()> {
    let len = reader.seek(SeekFrom::End(0))?;
    sampled.extend_from_slice(&len.to_le_bytes());
    let step = (len / SAMPLES).max(SAMPLE as u64);
    let last = len.saturating_sub(SAMPLE as u64);
    for at in (0..SAMPLES)
        .map(|index| index * step)
        .take_while(|&at| at < len)
        .chain([last])
    {
        reader.seek(SeekFrom::Start(at))?;
        reader.take(SAMPLE as u64).read_to_end(sampled)?;
    }
    Ok(())
}
