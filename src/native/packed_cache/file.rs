//! The file of packed weights, all numbers little-endian:
//!
//!   header   64 bytes   magic [16], maker u128, entries u64, bytes of the file u64, check u128
//!   entries             key u128, check u128, then three times: offset u64, length u64
//!   arrays              each from a multiple of 64 bytes on
//!
//! The maker is a hash of what made it: version of the crate, of this format and of the layout of
//! packed weights, architecture and instructions. The check of the header is a hash of it and all
//! entries; that of an entry is one of its arrays. So a file that was cut off, overwritten or that
//! has one bit changed is noticed; the arrays, which are nearly all of it, are looked at when they
//! are asked for, which also brings them into memory before the first run wants them. Nothing is
//! trusted beyond: places are inside of the file, and lengths are what the weights need, or the
//! entry is not used. Any content of an array is a weight.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::digest::digest;
use super::{Arrays, Key};
use crate::component::map_regular;
use crate::native::kernels::packed_weights::{Instructions, LAYOUT_VERSION};
use crate::native::workers::Workers;

/// The format of the file; what is in it has [`LAYOUT_VERSION`].
const FORMAT_VERSION: u32 = 1;

pub(super) const MAGIC: &[u8; 16] = b"oxpipe packed\r\n\x1a";
pub(super) const HEADER: usize = 64;
pub(super) const ENTRY: usize = 16 + 16 + 3 * 16;
/// Of arrays in the file.
pub(super) const ALIGN: usize = 64;
/// What of the header comes before its check.
pub(super) const CHECKED: usize = 48;

/// Who can use what a file has.
pub(super) fn maker() -> u128 {
    let maker = format!(
        "{} {FORMAT_VERSION} {LAYOUT_VERSION} {} {:?}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        Instructions::detect(),
    );
    digest(&Workers::alone(), maker.as_bytes())
}

/// The check of an entry.
pub(super) fn check(arrays: &Arrays, workers: &Workers) -> u128 {
    let checks = arrays
        .each_ref()
        .map(|array| digest(workers, array).to_le_bytes());
    digest(workers, checks.as_flattened())
}

/// The check of header and entries.
pub(super) fn check_of_head(header: &[u8], entries: &[u8], workers: &Workers) -> u128 {
    let checks = [header, entries].map(|part| digest(workers, part).to_le_bytes());
    digest(workers, checks.as_flattened())
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    check: u128,
    /// Offsets and lengths.
    arrays: [(usize, usize); 3],
}

/// A file whose header and entries are whole.
#[derive(Debug)]
pub(super) struct PackedFile {
    bytes: Bytes,
    entries: HashMap<u128, Entry>,
}

/// Arrays are not what was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoiled;

impl PackedFile {
    /// Maps a file. `None` when there is none; an error says why it cannot be used.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, String> {
        match map_regular(path) {
            Ok(file) => Self::parse(Bytes::from_owner(file)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn parse(bytes: Bytes) -> Result<Self, String> {
        let (header, rest) = bytes
            .split_at_checked(HEADER)
            .filter(|(header, _)| header.starts_with(MAGIC))
            .ok_or("it is not a file of packed weights")?;
        let (checked, expected) = header.split_at_checked(CHECKED).unwrap_or_default();
        let mut numbers = Numbers(checked.get(MAGIC.len()..).unwrap_or_default());
        let (made_by, count, len) = (numbers.u128(), numbers.size(), numbers.size());
        if made_by != Some(maker()) {
            return Err("it was made by another version, or for another CPU".into());
        }
        let entries = count
            .and_then(|count| count.checked_mul(ENTRY))
            .and_then(|size| rest.get(..size));
        let Some(entries) = entries.filter(|_| len == Some(bytes.len())) else {
            return Err("it is not as long as it says".into());
        };
        if Numbers(expected).u128() != Some(check_of_head(checked, entries, &Workers::alone())) {
            return Err("its list of weights is not as it was written".into());
        }
        let entries = entries
            .chunks_exact(ENTRY)
            .map(|entry| {
                let mut numbers = Numbers(entry);
                let (key, check) = (numbers.u128()?, numbers.u128()?);
                let mut place = || Some((numbers.size()?, numbers.size()?));
                let arrays = [place()?, place()?, place()?];
                Some((key, Entry { check, arrays }))
            })
            .collect::<Option<HashMap<_, _>>>();
        match entries {
            Some(entries) => Ok(PackedFile { bytes, entries }),
            None => Err("its list of weights has sizes that cannot be".into()),
        }
    }

    /// The arrays of a key, if it is there.
    pub(super) fn arrays(&self, Key(key): Key, workers: &Workers) -> Option<Result<Arrays, Spoiled>> {
        let entry = self.entries.get(&key)?;
        let array = |(offset, len): (usize, usize)| {
            let end = offset.checked_add(len).filter(|&end| end <= self.bytes.len())?;
            offset
                .is_multiple_of(ALIGN)
                .then(|| self.bytes.slice(offset..end))
        };
        let [a, b, c] = entry.arrays.map(array);
        let arrays = (|| Some([a?, b?, c?]))();
        let arrays = arrays.filter(|arrays| check(arrays, workers) == entry.check);
        Some(arrays.ok_or(Spoiled))
    }
}

/// Numbers that lie one after the other.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u128(&mut self) -> Option<u128> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_le_bytes(*bytes))
    }

    fn size(&mut self) -> Option<usize> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    }
}
