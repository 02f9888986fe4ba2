//! Whether a shared library is all there. The loader maps what the headers speak of without
//! looking at the file's size, and what is not there ends the process with SIGBUS.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::component::open_regular;

/// An error for a file that must not be given to the loader. What is no ELF file is left to
/// the loader, which says so.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let file = open_regular(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    match needed(&file, size) {
        Some(needed) if needed > size => Err(format!(
            "the file is truncated: it has {size} bytes, and its headers speak of {needed}; copy or fetch it again"
        )),
        _ => Ok(()),
    }
}

/// The bytes of a file, as far as it has them.
struct Bytes<'f> {
    file: &'f File,
    big_endian: bool,
}

impl Bytes<'_> {
    fn number(&self, at: u64, width: usize) -> Option<u64> {
        let mut bytes = [0u8; 8];
        let bytes = bytes.get_mut(..width)?;
        self.file.read_exact_at(bytes, at).ok()?;
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self.big_endian {
            true => bytes.iter().fold(0, fold),
            false => bytes.iter().rev().fold(0, fold),
        })
    }
}

/// Where the fields of one of the two classes lie: the ELF header's, then a program
/// header's. (System V ABI, chapters 4 and 5.)
struct Class {
    word: usize,
    program_headers: u64,
    section_headers: u64,
    program_header_size: u64,
    segment_offset: u64,
    segment_size: u64,
}

const CLASS_32: Class = Class {
    word: 4,
    program_headers: 28,
    section_headers: 32,
    program_header_size: 42,
    segment_offset: 4,
    segment_size: 16,
};

const CLASS_64: Class = Class {
    word: 8,
    program_headers: 32,
    section_headers: 40,
    program_header_size: 54,
    segment_offset: 8,
    segment_size: 32,
};

/// The size that an ELF file must have at least; nothing for any other file. Where the
/// headers themselves are cut off, what of them is missing counts.
fn needed(file: &File, size: u64) -> Option<u64> {
    const MAGIC: u64 = 0x7f45_4c46;
    let header = Bytes {
        file,
        big_endian: true,
    };
    if header.number(0, 4)? != MAGIC {
        return None;
    }
    let class = match header.number(4, 1) {
        Some(1) => CLASS_32,
        Some(2) => CLASS_64,
        Some(_) => return None,
        None => return Some(size + 1),
    };
    let bytes = Bytes {
        file,
        big_endian: header.number(5, 1) == Some(2),
    };
    // Sizes and counts of both tables follow each other: entry size, count, entry size, count.
    let sizes = class.program_header_size;
    let header_end = sizes + 8;
    if size < header_end {
        return Some(header_end);
    }
    let table = |at: u64, sizes: u64| -> Option<(u64, u64, u64)> {
        Some((
            bytes.number(at, class.word)?,
            bytes.number(sizes, 2)?,
            bytes.number(sizes + 2, 2)?,
        ))
    };
    let end = |(start, entry, count): (u64, u64, u64)| match count {
        0 => 0,
        count => start.saturating_add(entry * count),
    };
    let segments = table(class.program_headers, sizes)?;
    let sections = table(class.section_headers, sizes + 4)?;
    let mut needed = header_end.max(end(segments)).max(end(sections));
    let (start, entry, count) = segments;
    if end(segments) <= size {
        for index in 0..count {
            let at = start.saturating_add(entry * index);
            let offset = bytes.number(at.saturating_add(class.segment_offset), class.word)?;
            let length = bytes.number(at.saturating_add(class.segment_size), class.word)?;
            if length > 0 {
                needed = needed.max(offset.saturating_add(length));
            }
        }
    }
    Some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of class 64 and little-endian, with one segment and no sections.
    fn library(segment: (u64, u64)) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"\x7fELF\x02\x01\x01");
        put(32, &64u64.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &1u16.to_le_bytes());
        put(64, &1u32.to_le_bytes());
        put(64 + 8, &segment.0.to_le_bytes());
        put(64 + 32, &segment.1.to_le_bytes());
        bytes
    }

    fn checked(bytes: &[u8]) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        check(file.path())
    }

    #[test]
    fn segments_end_in_the_file() {
        checked(&library((0, 120))).unwrap();
        let message = checked(&library((0, 121))).unwrap_err();
        assert!(
            message.contains("it has 120 bytes, and its headers speak of 121"),
            "{message}"
        );
        checked(&library((u64::MAX, u64::MAX))).unwrap_err();
        checked(&library((1 << 40, 0))).unwrap();
    }

    #[test]
    fn every_beginning_of_a_library_is_refused() {
        let whole = library((0, 120));
        for length in 4..whole.len() {
            checked(&whole[..length]).unwrap_err();
        }
        // No ELF file at all: not for us to say.
        checked(b"\x7fEL").unwrap();
        checked(b"text").unwrap();
        checked(b"").unwrap();
    }

    #[test]
    fn no_header_makes_it_panic() {
        let whole = library((0, 120));
        for at in 4..whole.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = checked(&bytes);
            }
        }
    }

    #[test]
    fn only_files() {
        assert!(check(Path::new("/dev/null")).unwrap_err().contains("a device"));
    }
}
