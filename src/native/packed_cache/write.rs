//! Writing the file: all of it under another name first, then renamed, so that nobody ever sees
//! half of one, and who has mapped the old one keeps it.
//!
//! The other name is fixed, and who writes holds a lock on it. So of two processes one writes, the
//! other lets it, and what a process that was killed has left is overwritten by the next. Nothing is
//! forced to the disk: after a power failure the checks tell what is missing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::file::{ALIGN, CHECKED, ENTRY, HEADER, MAGIC, check, check_of_head, maker};
use super::{Arrays, Key};
use crate::component::FileIdentity;
use crate::native::workers::Workers;

/// Whether it was written: not if another process is writing it.
pub(super) fn write(path: &Path, entries: &[(Key, Arrays)], workers: &Workers) -> io::Result<bool> {
    let mut other = path.as_os_str().to_owned();
    other.push(".tmp");
    let other = Path::new(&other);
    let Some(mut file) = lock(other)? else {
        return Ok(false);
    };
    let written = file
        .set_len(0)
        .and_then(|()| write_to(&mut file, entries, workers))
        .and_then(|()| fs::rename(other, path));
    if let Err(error) = written {
        // It is as good as not there.
        drop(fs::remove_file(other));
        return Err(error);
    }
    Ok(true)
}

/// The file of this name, locked; `None` when another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        // Not through a link, and not waiting for the other end of a pipe.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let ours = file.metadata()?;
    // A file that has another name too is somebody's.
    if !ours.is_file() || ours.nlink() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} is not a regular file of its own", path.display()),
        ));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Between opening and locking it may have got its final name, which others map.
    let is_same =
        fs::symlink_metadata(path).is_ok_and(|now| FileIdentity::of(&now) == FileIdentity::of(&ours));
    Ok(is_same.then_some(file))
}

fn write_to(file: &mut File, entries: &[(Key, Arrays)], workers: &Workers) -> io::Result<()> {
    let mut end = HEADER + ENTRY * entries.len();
    let mut list = Vec::with_capacity(ENTRY * entries.len());
    for (Key(key), arrays) in entries {
        list.extend(key.to_le_bytes());
        list.extend(check(arrays, workers).to_le_bytes());
        for array in arrays {
            let at = end.next_multiple_of(ALIGN);
            end = at + array.len();
            list.extend((at as u64).to_le_bytes());
            list.extend((array.len() as u64).to_le_bytes());
        }
    }
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC);
    header.extend(maker().to_le_bytes());
    header.extend((entries.len() as u64).to_le_bytes());
    header.extend((end as u64).to_le_bytes());
    debug_assert_eq!(header.len(), CHECKED);
    header.extend(check_of_head(&header, &list, workers).to_le_bytes());

    file.write_all(&header)?;
    file.write_all(&list)?;
    let mut at = HEADER + list.len();
    for array in entries.iter().flat_map(|(_, arrays)| arrays) {
        let from = at.next_multiple_of(ALIGN);
        file.write_all(&[0; ALIGN][..from - at])?;
        file.write_all(array)?;
        at = from + array.len();
    }
    Ok(())
}
