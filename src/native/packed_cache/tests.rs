//! Files whose checks are right and whose sizes are not.

use std::fs;
use std::path::Path;

use bytes::Bytes;

use super::file::{self, ENTRY, HEADER, PackedFile};
use super::{Key, write};
use crate::native::workers::Workers;

const KEY: Key = Key(7);

fn written(path: &Path) -> Vec<u8> {
    let arrays = [b"codes".as_slice(), b"", b"points"].map(Bytes::from_static);
    assert!(write::write(path, &[(KEY, arrays)], &Workers::alone()).expect("it can be written"));
    fs::read(path).expect("it can be read")
}

/// The file with a number of an entry replaced, and the check of the head made right.
fn forged(file: &[u8], at: usize, number: u64) -> Vec<u8> {
    let mut forged = file.to_vec();
    forged[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let (head, rest) = forged.split_at_mut(HEADER);
    let (checked, to) = head.split_at_mut(file::CHECKED);
    let check = file::check_of_head(checked, &rest[..ENTRY], &Workers::alone());
    to.copy_from_slice(&check.to_le_bytes());
    forged
}

#[test]
fn sizes_are_not_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let whole = written(&path);
    let workers = Workers::alone();
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("it can be written");
        PackedFile::open(&path)
    };
    let file = open(&whole).expect("it is whole").expect("it is there");
    let [codes, scales, points] = file
        .arrays(KEY, &workers)
        .expect("it has the key")
        .expect("intact");
    assert_eq!(
        (&codes[..], &scales[..], &points[..]),
        (&b"codes"[..], &b""[..], &b"points"[..])
    );
    assert!(file.arrays(Key(8), &workers).is_none());

    // Offset and length of the first array, then of the last.
    let places = HEADER + 32;
    let len = whole.len() as u64;
    for (at, number) in [
        (places, 0),
        (places, 1),
        (places, len),
        (places, u64::MAX),
        (places, u64::MAX - 63),
        (places + 8, len),
        (places + 8, 4),
        (places + 8, u64::MAX),
        (places + 32, len + 64),
        (places + 40, 7),
    ] {
        let file = open(&forged(&whole, at, number))
            .expect("the head is right")
            .expect("it is there");
        let arrays = file.arrays(KEY, &workers).expect("it has the key");
        assert!(arrays.is_err(), "{number} at {at}");
    }
    // As many entries as do not fit, and another length of the file.
    for (at, number) in [
        (32, 2),
        (32, u64::MAX),
        (32, u64::MAX / ENTRY as u64),
        (40, len + 1),
        (40, 0),
    ] {
        assert!(open(&forged(&whole, at, number)).is_err(), "{number} at {at}");
    }
    let none = open(&forged(&whole, 32, 0));
    assert!(none.is_err(), "its check is of one entry");
}
