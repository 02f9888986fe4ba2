//! How much memory something may take: an account with a limit, and what is charged to it.
//!
//! An account is [entered](MemoryAccount::enter) for a while, and large buffers that the same thread
//! makes in that time ([`AlignedBytes`](super::AlignedBytes): values, KV caches, packed weights) are
//! charged to it until they are freed. A buffer that would go beyond the limit is refused before it is
//! allocated, as if the allocator had none left; [`MemoryAccount::explain`] then says what it was.
//! Without an account, one thread-local load is all that this costs.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ComponentError, ComponentErrorKind, TensorError};

thread_local! {
    static ENTERED: RefCell<Option<MemoryAccount>> = const { RefCell::new(None) };
}

/// Bytes that one thing may take, and those that it has. Clones are the same account.
#[derive(Clone)]
pub struct MemoryAccount(Arc<Account>);

struct Account {
    /// Who the memory is for, and the option that the limit is from.
    of: &'static str,
    option: &'static str,
    limit: u64,
    used: AtomicU64,
    /// What was refused since the account was entered; 0 for nothing.
    refused: AtomicU64,
}

impl MemoryAccount {
    /// `of` is who has it, "the run", and `option` the name of the option that says `limit`.
    pub fn new(of: &'static str, option: &'static str, limit: u64) -> Self {
        MemoryAccount(Arc::new(Account {
            of,
            option,
            limit,
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Charges this thread's buffers to the account, until the guard is dropped.
    #[must_use]
    pub fn enter(&self) -> EnteredAccount {
        self.0.refused.store(0, Ordering::Relaxed);
        EnteredAccount::new(Some(self.clone()))
    }

    /// The account that this thread is in.
    pub fn entered() -> Option<MemoryAccount> {
        ENTERED
            .try_with(|entered| entered.borrow().clone())
            .ok()
            .flatten()
    }

    /// Whether this thread is in an account.
    #[cfg(feature = "native")]
    pub(crate) fn is_entered() -> bool {
        let entered = ENTERED.try_with(|entered| entered.borrow().is_some());
        entered.unwrap_or(false)
    }

    /// Takes bytes off what is left, or nothing if there are not as many.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Refused> {
        self.take(bytes)?;
        Ok(Charge {
            account: self.clone(),
            bytes,
        })
    }

    fn take(&self, bytes: u64) -> Result<(), Refused> {
        let account = &self.0;
        let fits = |used: u64| used.checked_add(bytes).filter(|&all| all <= account.limit);
        match account
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
        {
            Ok(_) => Ok(()),
            Err(_) => {
                account.refused.store(bytes.max(1), Ordering::Relaxed);
                Err(Refused)
            }
        }
    }

    /// Bytes that are charged now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Says of an error for want of memory that it was this account's limit, if it was.
    pub fn explain(&self, error: ComponentError) -> ComponentError {
        match self.explanation(error.kind()) {
            None => error,
            Some(kind) => ComponentError::new(error.component, kind),
        }
    }

    /// [`explain`](Self::explain) of the account that something's memory counts for, if it is limited.
    pub(crate) fn explain_of(account: Option<&Self>, error: ComponentError) -> ComponentError {
        match account {
            Some(account) => account.explain(error),
            None => error,
        }
    }

    /// What [`explain`](Self::explain) says in place of an error, if that was this account's limit.
    pub fn explanation(&self, error: &ComponentErrorKind) -> Option<ComponentErrorKind> {
        match error {
            ComponentErrorKind::OutOfMemory { what, .. } => self.refusal(what),
            ComponentErrorKind::BadTensor {
                port,
                source: TensorError::OutOfMemory { .. },
            } => self.refusal(&format!("port \"{port}\"")),
            _ => None,
        }
    }

    /// The error of what was refused since the account was entered, if something was.
    pub fn refusal(&self, what: &str) -> Option<ComponentErrorKind> {
        match self.0.refused.swap(0, Ordering::Relaxed) {
            0 => None,
            bytes => Some(self.over_limit(bytes, what.to_owned())),
        }
    }

    /// The error of what would go beyond the limit.
    pub fn over_limit(&self, bytes: u64, what: String) -> ComponentErrorKind {
        ComponentErrorKind::OverMemoryLimit {
            bytes,
            what,
            of: self.0.of,
            used: self.used(),
            limit: self.0.limit,
            option: self.0.option,
        }
    }
}

impl fmt::Debug for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.used(), self.0.limit)
    }
}

/// There are fewer bytes left than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: MemoryAccount,
    bytes: u64,
}

impl Charge {
    /// The charge of a buffer that this thread is about to make.
    pub(crate) fn of_entered(bytes: usize) -> Result<Option<Charge>, Refused> {
        let charge = ENTERED.try_with(|entered| {
            let entered = entered.borrow();
            entered
                .as_ref()
                .map(|account| account.charge(bytes as u64))
                .transpose()
        });
        charge.unwrap_or(Ok(None))
    }

    /// Takes more bytes from the same account.
    #[cfg(feature = "native")]
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Refused> {
        self.account.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Keeps a thread in an account; it is then in the one that it was in before.
#[derive(Debug)]
pub struct EnteredAccount {
    before: Option<MemoryAccount>,
    /// Of the thread that entered.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl EnteredAccount {
    /// [Enters](MemoryAccount::enter) the account that something's memory counts for, if it is limited,
    /// or leaves the one that the thread is in.
    pub(crate) fn of(account: Option<&MemoryAccount>) -> Self {
        match account {
            Some(account) => account.enter(),
            None => EnteredAccount::new(None),
        }
    }

    /// Enters an account, or leaves the one that the thread is in.
    pub(crate) fn new(account: Option<MemoryAccount>) -> Self {
        let before = ENTERED.try_with(|entered| entered.replace(account));
        EnteredAccount {
            before: before.ok().flatten(),
            _not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for EnteredAccount {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = ENTERED.try_with(|entered| entered.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::AlignedBytes;

    #[test]
    fn buffers_count_while_they_live() {
        let account = MemoryAccount::new("the run", "memory_bytes", 100);
        let other = MemoryAccount::new("the run", "memory_bytes", 10);
        let first = {
            let _entered = account.enter();
            let first = AlignedBytes::try_zeroed(60).unwrap();
            assert!(AlignedBytes::try_zeroed(41).is_err());
            {
                let _inner = other.enter();
                assert!(AlignedBytes::try_zeroed(11).is_err());
            }
            assert!(AlignedBytes::try_zeroed(40).is_ok());
            first
        };
        assert_eq!(account.used(), 60);
        // Outside nothing is charged.
        let _outside = AlignedBytes::try_zeroed(1000).unwrap();
        let moved = std::thread::spawn(move || first);
        drop(moved.join().unwrap());
        assert_eq!((account.used(), other.used()), (0, 0));
    }

    #[test]
    fn only_what_the_limit_refused_is_explained_by_it() {
        let account = MemoryAccount::new("the run", "memory_bytes", 100);
        let error = || {
            let what = "a result".to_owned();
            ComponentError::new("part", ComponentErrorKind::OutOfMemory { bytes: 1 << 60, what })
        };
        let _entered = account.enter();
        let plain = account.explain(error()).to_string();
        assert_eq!(plain, error().to_string());
        assert!(AlignedBytes::try_zeroed(101).is_err());
        let explained = account.explain(error()).to_string();
        for word in ["part", "a result", "101 bytes", "the run", "100", "memory_bytes"] {
            assert!(explained.contains(word), "{explained}");
        }
    }
}
