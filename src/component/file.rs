//! Regular files, and nothing else: opening a pipe waits for its other end, a device may
//! have no end, and reading either may do something.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;
#[cfg(feature = "native")]
use memmap2::UncheckedAdvice;

#[cfg(feature = "native")]
use super::{AlignedBytes, EnteredAccount};

/// The most bytes of a metadata file, a chat template or a tokenizer's configuration.
pub const TEXT_LIMIT: u64 = 16 << 20;
/// The most bytes of a tokenizer.
pub const TOKENIZER_LIMIT: u64 = 256 << 20;

/// The bytes of a file, mapped or read as a whole.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "native"),
    expect(dead_code, reason = "only the native runtime looks for changes")
)]
pub struct MappedFile {
    bytes: FileBytes,
    /// Absolute. The file itself is not kept open: a model may have more files than a process may have
    /// descriptors.
    path: PathBuf,
    /// What the file was when it was mapped.
    seen: Stamp,
}

enum FileBytes {
    /// A file may be empty, a mapping may not.
    Empty,
    Mapped(Mmap),
    #[cfg(feature = "native")]
    Read(AlignedBytes),
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileBytes::Empty => "Empty",
            FileBytes::Mapped(_) => "Mapped",
            #[cfg(feature = "native")]
            FileBytes::Read(_) => "Read",
        })
    }
}

/// What tells a file from others, whatever they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Which file it is, and what changes when somebody writes to it or cuts it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: FileIdentity,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Stamp {
            file: FileIdentity::of(metadata),
            len: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            FileBytes::Empty => &[],
            FileBytes::Mapped(mapping) => mapping,
            #[cfg(feature = "native")]
            FileBytes::Read(bytes) => bytes,
        }
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
        let FileBytes::Mapped(mapping) = &self.bytes else {
            return;
        };
        if !self.contains(bytes) {
            return;
        }
        let offset = bytes.as_ptr().addr() - mapping.as_ptr().addr();
        // SAFETY: the range is in the mapping, which is of a file and read-only: what is dropped is
        // no more than a copy of what the file has, so slices of it read the same afterwards.
        let advised =
            unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes.len()) };
        // Only advice.
        drop(advised);
    }

    /// An error if somebody has written to the mapped file or cut it off: what lies in the mapping is
    /// then not what it was, and reading behind the new end ends the process. Who replaces a file by
    /// renaming another one over it does not change the one that is mapped.
    #[cfg(feature = "native")]
    pub fn check_unchanged(&self) -> io::Result<()> {
        if !matches!(self.bytes, FileBytes::Mapped(_)) {
            return Ok(());
        }
        // What the path leads to now. Another file, or none, is in the place of the one that is mapped,
        // whose inode nobody else gets as long as the mapping is there.
        let Ok(metadata) = std::fs::metadata(&self.path) else {
            return Ok(());
        };
        let (seen, now) = (self.seen, Stamp::of(&metadata));
        if now == seen || now.file != seen.file {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "it was {} while it was in use: it had {} bytes when it was opened and has {} now. Open the \
                 model again; replace files by renaming, or open with the option \"native.model_files\" = \
                 \"read\"",
                if now.len < seen.len {
                    "cut off"
                } else {
                    "written to"
                },
                seen.len,
                now.len
            ),
        ))
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
    let path = std::path::absolute(path)?;
    let seen = Stamp::of(&file.metadata()?);
    if seen.len == 0 {
        let bytes = FileBytes::Empty;
        return Ok(MappedFile { bytes, path, seen });
    }
    // SAFETY: the mapping is read-only and private to this process's view, and is only
    // handed out as shared slices that keep it alive. What Rust cannot see is another
    // process that writes to or truncates the file meanwhile: the host must not let that
    // happen to the models it runs, as the header says; every runtime that maps its weights
    // relies on the same.
    let mapping = unsafe { Mmap::map(&file)? };
    let bytes = FileBytes::Mapped(mapping);
    Ok(MappedFile { bytes, path, seen })
}

/// Reads a file, of any size, into memory that nobody else can change. `between` is called before each
/// piece of some megabytes, and may unwind.
#[cfg(feature = "native")]
pub fn read_whole(path: &Path, between: impl Fn()) -> io::Result<MappedFile> {
    const PIECE: usize = 8 << 20;
    let mut file = open_regular(path)?;
    let path = std::path::absolute(path)?;
    let seen = Stamp::of(&file.metadata()?);
    // Its size counts as that of a mapped file does.
    let _entered = EnteredAccount::new(None);
    let len = usize::try_from(seen.len).unwrap_or(usize::MAX);
    let mut bytes =
        AlignedBytes::try_zeroed(len).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
    for piece in bytes.chunks_mut(PIECE) {
        between();
        file.read_exact(piece)?;
    }
    let bytes = FileBytes::Read(bytes);
    Ok(MappedFile { bytes, path, seen })
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
