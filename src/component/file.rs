//! Regular files, and nothing else: opening a pipe waits for its other end, a device may
//! have no end, and reading either may do something.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use memmap2::Mmap;
#[cfg(feature = "native")]
use memmap2::UncheckedAdvice;

/// The most bytes of a metadata file, a chat template or a tokenizer's configuration.
pub const TEXT_LIMIT: u64 = 16 << 20;
/// The most bytes of a tokenizer.
pub const TOKENIZER_LIMIT: u64 = 256 << 20;

/// The bytes of a file, mapped; a file may be empty, a mapping may not.
#[derive(Debug)]
pub struct MappedFile(Option<Mmap>);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl MappedFile {
    /// Whether `bytes` are bytes of this mapping.
    #[cfg(feature = "native")]
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let (file, bytes) = (self.as_ref().as_ptr_range(), bytes.as_ptr_range());
        file.start <= bytes.start && bytes.end <= file.end
    }

    /// Lets the system take back the memory of some of the file's bytes, which will hardly be
    /// read again; if they are, it fetches them again. Does nothing for other bytes.
    #[cfg(feature = "native")]
    pub fn give_back(&self, bytes: &[u8]) {
        let Some(mapping) = self.0.as_ref().filter(|_| self.contains(bytes)) else {
            return;
        };
        let offset = bytes.as_ptr().addr() - mapping.as_ptr().addr();
        // SAFETY: the range is in the mapping, which is of a file and read-only: what is dropped is
        // no more than a copy of what the file has, so slices of it read the same afterwards.
        let advised =
            unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes.len()) };
        // Only advice.
        drop(advised);
    }
}

/// Opens a file that is one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the path is empty"));
    }
    // Asked before the file is opened, which alone can do something to a device, and again
    // of what was opened. O_NONBLOCK is for a pipe that comes in between; a regular file
    // does not know it.
    regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

fn regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    };
    let kind = match kind.is_dir() {
        true => io::ErrorKind::IsADirectory,
        false => io::ErrorKind::InvalidInput,
    };
    Err(io::Error::new(
        kind,
        format!("it is {found}, expected a regular file"),
    ))
}

/// Maps a file.
pub fn map_regular(path: &Path) -> io::Result<MappedFile> {
    let file = open_regular(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(MappedFile(None));
    }
    // SAFETY: the mapping is read-only and private to this process's view, and is only
    // handed out as shared slices that keep it alive. What Rust cannot see is another
    // process that writes to or truncates the file meanwhile: the host must not let that
    // happen to the models it runs, as the header says; every runtime that maps its weights
    // relies on the same.
    let mapping = unsafe { Mmap::map(&file)? };
    Ok(MappedFile(Some(mapping)))
}

/// Reads a file of at most `limit` bytes.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    check_size(file.metadata()?.len(), limit)?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let mut reader = file.take(limit.saturating_add(1));
    reader.read_to_end(&mut bytes)?;
    check_size(bytes.len() as u64, limit)?;
    Ok(bytes)
}

/// The error of a file that is larger than its kind may be.
pub fn check_size(bytes: u64, limit: u64) -> io::Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has {bytes} bytes, expected at most {} MB", limit / (1 << 20)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"four").unwrap();
        assert_eq!(read_regular(&file, 4).unwrap(), b"four");
        assert_eq!(map_regular(&file).unwrap().as_ref(), b"four");
        let error = read_regular(&file, 3).unwrap_err().to_string();
        assert!(error.contains("4 bytes"), "{error}");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(map_regular(&file).unwrap().as_ref(), b"");

        let pipe = folder.path().join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        for (path, word) in [
            (folder.path(), "a directory"),
            (pipe.as_path(), "a pipe"),
            (Path::new("/dev/zero"), "a device"),
            (Path::new(""), "the path is empty"),
        ] {
            for error in [map_regular(path).unwrap_err(), read_regular(path, 9).unwrap_err()] {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
    }
}
