//! Packed weights that are kept in a file, so that the next start need not pack them.
//!
//! The file belongs to one model and holds the arrays of all weights that were packed when it was
//! loaded, each under a key: a hash of the constants that it was made of, byte by byte, and of all
//! else that it depends on. So weights that have changed are never taken for what they were,
//! whatever the dates of files say, and a copy of model and file on another machine is as good.
//! What that costs is one look at each byte of the model, with all threads.
//!
//! The file as a whole is for one version of this crate, of the layout, and for one set of CPU
//! features (see `file`); any other is left unused and written anew. It is read through a mapping,
//! and what is taken from it is used where it lies: processes share its pages.
//!
//! [`PackedCache`] says where files are; [`Store`] is the file of a model that is being loaded;
//! [`PackedCacheReport`] is what came of it.

mod digest;
mod file;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::Bytes;

use self::file::{PackedFile, Spoiled};
use super::operator::OpError;
use super::tensor::TensorRef;
use super::workers::Workers;
use crate::component::ModelSource;

/// Names end in this.
const SUFFIX: &str = ".oxpacked";

/// Where packed weights are kept. As an option: `off`, `beside`, or the path of a folder, with a
/// slash in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PackedCache {
    #[default]
    Off,
    /// In a file beside the model's: `model.onnx.oxpacked`. Nowhere for a model in memory.
    Beside,
    /// In a file in this folder, which must exist; its name is made of the model's name and a hash
    /// of its path, or of its bytes when it is in memory.
    Folder(PathBuf),
}

/// The value of an option that says nothing that [`PackedCache`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPlace;

impl FromStr for PackedCache {
    type Err = UnknownPlace;

    fn from_str(value: &str) -> Result<Self, UnknownPlace> {
        match value {
            "off" => Ok(PackedCache::Off),
            "beside" => Ok(PackedCache::Beside),
            // So that a mistyped word is not taken for a folder.
            folder if folder.contains('/') => Ok(PackedCache::Folder(folder.into())),
            _ => Err(UnknownPlace),
        }
    }
}

impl PackedCache {
    /// The file for a model.
    fn file(&self, model: &ModelSource, workers: &Workers) -> Option<PathBuf> {
        match (self, model) {
            (PackedCache::Off, _) | (PackedCache::Beside, ModelSource::Memory { .. }) => None,
            (PackedCache::Beside, ModelSource::File { path, .. }) => {
                let mut beside = path.clone().into_os_string();
                beside.push(SUFFIX);
                Some(beside.into())
            }
            (PackedCache::Folder(folder), ModelSource::File { path, .. }) => {
                let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
                let name = path.file_name().map(|name| name.to_string_lossy());
                let hash = digest::digest(workers, whole.as_os_str().as_encoded_bytes());
                Some(in_folder(folder, name.as_deref().unwrap_or("model"), hash))
            }
            (PackedCache::Folder(folder), ModelSource::Memory { model, .. }) => {
                let hash = digest::digest(workers, (**model).as_ref());
                Some(in_folder(folder, "model", hash))
            }
        }
    }
}

fn in_folder(folder: &Path, name: &str, hash: u128) -> PathBuf {
    folder.join(format!("{name}-{:016x}{SUFFIX}", hash as u64))
}

/// What came of a [`PackedCache`] when a model was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedCacheReport {
    /// The file; `None` when packed weights are not kept.
    pub file: Option<PathBuf>,
    /// Weights that were taken from it.
    pub taken: usize,
    /// Weights that had to be packed.
    pub packed: usize,
    /// Whether it was written (anew), with all of them.
    pub written: bool,
    /// Why what was there before was not used, or not all of it.
    pub refused: Option<String>,
    /// Why it could not be written. The model runs all the same.
    pub failure: Option<String>,
}

/// What packed weights are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u128);

type Arrays = [Bytes; 3];

/// The packed weights of a model while it is loaded.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    workers: Workers,
    found: Option<PackedFile>,
    refused: Option<String>,
    entries: Vec<(Key, Arrays)>,
    taken: usize,
    packed: usize,
}

impl Store {
    /// `None` when nothing is kept.
    pub(super) fn open(place: &PackedCache, model: &ModelSource, workers: &Workers) -> Option<Self> {
        Some(Self::at(place.file(model, workers)?, workers))
    }

    /// The file of this path.
    pub(super) fn at(path: PathBuf, workers: &Workers) -> Self {
        let (found, refused) = match PackedFile::open(&path) {
            Ok(found) => (found, None),
            Err(why) => (None, Some(why)),
        };
        Store {
            path,
            workers: workers.clone(),
            found,
            refused,
            entries: Vec::new(),
            taken: 0,
            packed: 0,
        }
    }

    /// The key of what is made of these constants and numbers. `done` is called with what has been
    /// looked at.
    pub fn key(
        &self,
        numbers: &[u64],
        constants: &[Option<TensorRef<'_>>],
        done: &dyn Fn(&[u8]),
    ) -> Result<Key, OpError> {
        digest::key(&self.workers, numbers, constants, done).map(Key)
    }

    /// The arrays of this key, if the file has them, and as they were when it was written.
    pub fn find(&mut self, key: Key) -> Option<Arrays> {
        match self.found.as_ref()?.arrays(key, &self.workers)? {
            Ok(arrays) => Some(arrays),
            Err(Spoiled) => {
                self.refused = Some("some of it is not as it was written".into());
                None
            }
        }
    }

    /// What [`find`](Self::find) gave is used.
    pub fn taken(&mut self, key: Key, arrays: Arrays) {
        self.taken += 1;
        self.entries.push((key, arrays));
    }

    /// What was packed because there was nothing to find.
    pub fn made(&mut self, key: Key, arrays: Arrays) {
        self.packed += 1;
        self.entries.push((key, arrays));
    }

    /// Writes the file unless it had everything.
    pub(super) fn finish(mut self) -> PackedCacheReport {
        let mut report = PackedCacheReport {
            taken: self.taken,
            packed: self.packed,
            refused: self.refused,
            ..PackedCacheReport::default()
        };
        if self.packed > 0 {
            // Weights that a model has twice are kept once.
            self.entries.sort_by_key(|&(key, _)| key);
            self.entries.dedup_by_key(|&mut (key, _)| key);
            match write::write(&self.path, &self.entries, &self.workers) {
                Ok(written) => report.written = written,
                Err(error) => report.failure = Some(error.to_string()),
            }
        }
        report.file = Some(self.path);
        report
    }
}
