//! What bounds the work on an image or a sound: the end that the caller sets, and memory.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::MediaError;
use crate::component::{ComponentErrorKind, RunControl};

/// The most bytes that one call takes for what a program makes, all of its values and tensors
/// together: 4 GiB.
pub const MOST_BYTES: u64 = 1 << 32;
/// Additions and multiplications, about, between two looks at the control: a fraction of a
/// millisecond.
const BETWEEN_LOOKS: usize = 1 << 16;
/// Elements that are written for the first time between two looks: the system makes memory of them,
/// which takes a millisecond for some megabytes.
const IN_ONE_GO: usize = 1 << 18;
/// Encoded bytes that a decoder is given at once. Of 4 KiB a PNG makes 4 MiB at most.
const PIECE: usize = 1 << 12;

/// The bounds of one call. Everything that takes long counts what it does here, and everything
/// whose size a file or a package decides asks here for room.
#[derive(Debug)]
pub struct Work {
    control: RunControl,
    done: Cell<usize>,
    taken: Cell<u64>,
    most: u64,
}

/// See [`Work::share`].
pub(super) struct Shared {
    control: RunControl,
    taken: u64,
    most: u64,
}

impl Default for Work {
    /// Work that nobody ends.
    fn default() -> Self {
        Work::new(&RunControl::default())
    }
}

impl Work {
    pub fn new(control: &RunControl) -> Self {
        Work {
            control: control.clone(),
            done: Cell::new(0),
            taken: Cell::new(0),
            most: MOST_BYTES,
        }
    }

    /// The same with fewer bytes of memory than [`MOST_BYTES`].
    pub fn within(control: &RunControl, most: u64) -> Self {
        Work {
            most,
            ..Work::new(control)
        }
    }

    /// What another thread needs to go on with it.
    pub(super) fn share(&self) -> Shared {
        Shared {
            control: self.control.clone(),
            taken: self.taken.get(),
            most: self.most,
        }
    }

    pub(super) fn of(shared: Shared) -> Self {
        Work {
            control: shared.control,
            done: Cell::new(0),
            taken: Cell::new(shared.taken),
            most: shared.most,
        }
    }

    /// Bytes of memory that were asked for.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    pub(super) fn set_taken(&self, bytes: u64) {
        self.taken.set(bytes);
    }

    /// An error if the call is to end now.
    pub(super) fn look(&self) -> Result<(), MediaError> {
        match self.control.stop_reason() {
            None => Ok(()),
            Some(ComponentErrorKind::DeadlineExceeded) => Err(MediaError::DeadlineExceeded),
            Some(ComponentErrorKind::OutOfMemory { bytes, .. }) => Err(MediaError::OutOfMemory { bytes }),
            Some(_) => Err(MediaError::Cancelled),
        }
    }

    /// Counts operations that were done or are next, and looks now and then whether to go on.
    #[inline]
    pub(super) fn count(&self, operations: usize) -> Result<(), MediaError> {
        let done = self.done.get().saturating_add(operations);
        if done < BETWEEN_LOOKS {
            self.done.set(done);
            return Ok(());
        }
        self.done.set(0);
        self.look()
    }

    /// Room for `count` elements, or an error: a few bytes of a file can ask for any number.
    pub(super) fn room<T>(&self, count: usize) -> Result<Vec<T>, MediaError> {
        self.look()?;
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        let taken = self.taken.get().saturating_add(bytes);
        self.check_limit(bytes)?;
        if taken > MOST_BYTES {
            return Err(MediaError::TooLarge {
                what: "the memory that preprocessing takes",
                found: format!("{taken} bytes"),
                most: format!("{MOST_BYTES} bytes, all values of a program together"),
            });
        }
        let mut room = Vec::new();
        room.try_reserve_exact(count)
            .map_err(|_| MediaError::OutOfMemory { bytes })?;
        self.taken.set(taken);
        Ok(room)
    }

    /// An error if so many more bytes are beyond what the caller allows.
    fn check_limit(&self, bytes: u64) -> Result<(), MediaError> {
        let used = self.taken.get();
        match used.saturating_add(bytes) > self.most && self.most < MOST_BYTES {
            false => Ok(()),
            true => Err(MediaError::OverMemoryLimit {
                bytes,
                used,
                limit: self.most,
            }),
        }
    }

    /// An error if a decoder that takes as many bytes on its own, and ends the process without them,
    /// would not have them.
    pub(super) fn ask(&self, bytes: usize) -> Result<(), MediaError> {
        self.look()?;
        self.check_limit(bytes as u64)?;
        Vec::<u8>::new()
            .try_reserve_exact(bytes)
            .map_err(|_| MediaError::OutOfMemory { bytes: bytes as u64 })
    }

    /// Where the first of all windows of `width` bytes is that is looked for.
    pub(super) fn position(
        &self,
        bytes: &[u8],
        width: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<usize>, MediaError> {
        let mut rest = bytes;
        let mut before = 0;
        while rest.len() >= width {
            let piece = rest.get(..PIECE + width - 1).unwrap_or(rest);
            self.count(piece.len())?;
            if let Some(at) = piece.windows(width).position(&wanted) {
                return Ok(Some(before + at));
            }
            before += PIECE;
            rest = rest.get(PIECE..).unwrap_or_default();
        }
        Ok(None)
    }

    /// `count` elements of `value`, or an error.
    pub(super) fn filled<T: Clone>(&self, count: usize, value: T) -> Result<Vec<T>, MediaError> {
        let mut room = self.room(count)?;
        while room.len() < count {
            self.look()?;
            room.resize(count.min(room.len() + IN_ONE_GO), value.clone());
        }
        Ok(room)
    }

    pub(super) fn copied<T: Copy>(&self, from: &[T]) -> Result<Vec<T>, MediaError> {
        let mut copy = self.room(from.len())?;
        for piece in from.chunks(IN_ONE_GO) {
            self.look()?;
            copy.extend_from_slice(piece);
        }
        Ok(copy)
    }
}

/// An encoded file, for decoders that read it piece by piece: reading fails once the call is to
/// end.
#[derive(Clone)]
pub(super) struct Source<'a> {
    bytes: &'a [u8],
    at: usize,
    work: &'a Work,
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8], work: &'a Work) -> Self {
        Source { bytes, at: 0, work }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// An error if the call is to end now.
    pub fn look(&self) -> io::Result<()> {
        self.work.look().map_err(io::Error::other)
    }

    /// The next bytes, at most as many.
    pub fn piece(&self, most: usize) -> io::Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let piece = rest.get(..most.min(PIECE)).unwrap_or(rest);
        let each = BETWEEN_LOOKS / PIECE;
        self.work
            .count(each * piece.len().max(1))
            .map_err(io::Error::other)?;
        Ok(piece)
    }

    /// The next byte, 0 behind the end.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, MediaError> {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at = self.at.saturating_add(1);
        if self.at.is_multiple_of(PIECE) {
            self.work.look()?;
        }
        Ok(byte)
    }

    pub fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.piece(buffer.len())?;
        if let Some(to) = buffer.get_mut(..piece.len()) {
            to.copy_from_slice(piece);
        }
        self.skip(piece.len());
        Ok(piece.len())
    }
}

impl BufRead for Source<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.piece(PIECE)
    }

    fn consume(&mut self, amount: usize) {
        self.skip(amount);
    }
}

impl Seek for Source<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => (self.bytes.len() as u64).checked_add_signed(by),
            SeekFrom::Current(by) => (self.at as u64).checked_add_signed(by),
        };
        let place = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Behind the end there is nothing, as far as it may be.
        self.at = usize::try_from(place).unwrap_or(usize::MAX);
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::CancelToken;

    #[test]
    fn work_ends_when_it_is_asked_to() {
        let token = CancelToken::new();
        let work = Work::new(&RunControl {
            cancel: Some(token.clone()),
            deadline: None,
        });
        let mut source = Source::new(&[7; 3 * PIECE], &work);
        let mut all = Vec::new();
        source.by_ref().take(5).read_to_end(&mut all).unwrap();
        token.request();
        assert!(source.read_to_end(&mut all).is_err());
        // What came before the next look: one piece.
        assert!(all.len() <= 5 + PIECE, "{}", all.len());
        assert_eq!(work.look(), Err(MediaError::Cancelled));
        assert_eq!(work.room::<u8>(1), Err(MediaError::Cancelled));
    }

    #[test]
    fn windows_are_found_over_the_ends_of_pieces() {
        let work = Work::default();
        for at in [0, 1, PIECE - 2, PIECE - 1, PIECE, 2 * PIECE, 3 * PIECE - 3] {
            let mut bytes = vec![0; 3 * PIECE];
            bytes[at..at + 3].copy_from_slice(&[1, 2, 3]);
            let found = work.position(&bytes, 3, |window| window == [1, 2, 3]);
            assert_eq!(found, Ok(Some(at)));
            assert_eq!(work.position(&bytes, 3, |window| window == [3, 2, 1]), Ok(None));
        }
        assert_eq!(work.position(&[1], 2, |_| true), Ok(None));
    }

    #[test]
    fn what_decoders_take_is_asked_for_first() {
        let work = Work::default();
        assert_eq!(work.ask(1 << 10), Ok(()));
        let bytes = u64::MAX;
        assert_eq!(work.ask(usize::MAX), Err(MediaError::OutOfMemory { bytes }));
    }

    #[test]
    fn memory_is_refused_before_it_is_taken() {
        let work = Work::default();
        assert!(matches!(
            work.room::<u64>(1 << 29),
            Ok(_) | Err(MediaError::OutOfMemory { .. })
        ));
        let work = Work::default();
        work.room::<u8>(1000).unwrap();
        for count in [(MOST_BYTES - 999) as usize, usize::MAX] {
            let error = work.room::<u8>(count).unwrap_err();
            assert!(matches!(error, MediaError::TooLarge { .. }), "{error}");
        }
        assert_eq!(work.filled(3, 1u8).unwrap(), [1; 3]);
    }
}
