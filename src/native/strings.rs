//! The strings of a tensor.
//!
//! A string takes what [`String`] does and its text: that much counts for the
//! [account](crate::component::MemoryAccount) that the thread is in, and an allocation that is refused is
//! an error, for a small model can ask for any number of long ones.

use std::cell::Cell;

use super::operator::OpError;
use crate::component::Charge;
use crate::reserve;

thread_local! {
    /// Bytes of strings that this thread may still make.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Runs `body`, which may make strings of so many bytes in all.
pub(super) fn within<R>(bytes: usize, body: impl FnOnce() -> R) -> R {
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _before = Before(LEFT.replace(bytes));
    body()
}

/// Strings, and what they count for.
#[derive(Debug)]
pub(super) struct Strings {
    texts: Vec<String>,
    bytes: usize,
    charge: Option<Charge>,
}

impl Strings {
    /// None yet, with room for `count`.
    pub(super) fn with_room(count: usize) -> Result<Self, OpError> {
        let Ok(charge) = Charge::of_entered(0) else {
            return Err(OpError::OutOfMemory { bytes: 0 });
        };
        let mut strings = Strings {
            texts: Vec::new(),
            bytes: 0,
            charge,
        };
        strings.make_room(count)?;
        Ok(strings)
    }

    /// Copies of these.
    pub(super) fn copied<'s>(texts: impl ExactSizeIterator<Item = &'s String>) -> Result<Self, OpError> {
        let mut strings = Strings::with_room(texts.len())?;
        strings.extend(texts)?;
        Ok(strings)
    }

    /// Strings that are there already.
    pub(super) fn of(texts: Vec<String>) -> Result<Self, OpError> {
        let mut strings = Strings::with_room(0)?;
        let own = texts.capacity().saturating_mul(size_of::<String>());
        let bytes = texts
            .iter()
            .fold(own, |all, text| all.saturating_add(text.capacity()));
        strings.count(bytes)?;
        strings.texts = texts;
        Ok(strings)
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), OpError> {
        self.push_joined(&[text])
    }

    /// Adds one string of these parts.
    pub(super) fn push_joined(&mut self, parts: &[&str]) -> Result<(), OpError> {
        let text = self.joined(parts)?;
        self.make_room_for_one()?;
        self.texts.push(text);
        Ok(())
    }

    pub(super) fn push_own(&mut self, text: String) -> Result<(), OpError> {
        self.count(text.capacity())?;
        self.make_room_for_one()?;
        self.texts.push(text);
        Ok(())
    }

    pub(super) fn extend<'s>(&mut self, texts: impl IntoIterator<Item = &'s String>) -> Result<(), OpError> {
        texts.into_iter().try_for_each(|text| self.push(text))
    }

    /// Overwrites strings from a position on.
    pub(super) fn overwrite(&mut self, first: usize, texts: &[String]) -> Result<(), OpError> {
        for (at, text) in (first..).zip(texts) {
            let text = self.joined(&[text])?;
            if let Some(place) = self.texts.get_mut(at) {
                *place = text;
            }
        }
        Ok(())
    }

    pub(super) fn as_slice(&self) -> &[String] {
        &self.texts
    }

    /// What they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn joined(&mut self, parts: &[&str]) -> Result<String, OpError> {
        let bytes = parts
            .iter()
            .fold(0usize, |all, part| all.saturating_add(part.len()));
        self.count(bytes)?;
        let mut text = String::new();
        reserve::fallible(|| text.try_reserve_exact(bytes)).map_err(|_| OpError::OutOfMemory { bytes })?;
        parts.iter().for_each(|part| text.push_str(part));
        Ok(text)
    }

    fn make_room_for_one(&mut self) -> Result<(), OpError> {
        match self.texts.len() < self.texts.capacity() {
            true => Ok(()),
            false => self.make_room(self.texts.len().max(4)),
        }
    }

    fn make_room(&mut self, more: usize) -> Result<(), OpError> {
        let bytes = more.saturating_mul(size_of::<String>());
        self.count(bytes)?;
        reserve::fallible(|| self.texts.try_reserve_exact(more)).map_err(|_| OpError::OutOfMemory { bytes })
    }

    fn count(&mut self, bytes: usize) -> Result<(), OpError> {
        let refused = OpError::OutOfMemory { bytes };
        let left = LEFT.get();
        if left != usize::MAX {
            LEFT.set(left.checked_sub(bytes).ok_or(refused.clone())?);
        }
        if let Some(charge) = &mut self.charge {
            charge.grow(bytes as u64).map_err(|_| refused)?;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }
}
