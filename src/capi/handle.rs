//! Handles: what C holds instead of objects.
//!
//! A handle is a number dressed as a pointer, never the address of anything: it holds a
//! mark, the type and a count that is not used twice, and a table leads from it to the
//! object. So a freed handle, one of another type and any other pointer are told apart from
//! a live one without reading memory that may be gone, and a handle that is freed on one
//! thread while another is in a call keeps its object until that call ends.
//!
//! The table is one of the library's few statics, justified by just that: without it, what
//! a freed handle does could only be undefined.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::failure::{Failure, Result};
use super::status::{OXP_ERR_BUSY, OXP_ERR_INVALID_HANDLE};

/// The types of handles. The discriminants are part of handles, not of the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Error = 1,
    Options = 2,
    Cancel = 3,
    Runtime = 4,
    Session = 5,
    Outputs = 6,
    Pipeline = 7,
    Run = 8,
    Tokenizer = 9,
    DecodeStream = 10,
    ChatTemplate = 11,
    Batch = 12,
}

impl Tag {
    const ALL: [Tag; 12] = [
        Tag::Error,
        Tag::Options,
        Tag::Cancel,
        Tag::Runtime,
        Tag::Session,
        Tag::Outputs,
        Tag::Pipeline,
        Tag::Run,
        Tag::Tokenizer,
        Tag::DecodeStream,
        Tag::ChatTemplate,
        Tag::Batch,
    ];

    /// The type's name in the header.
    fn name(self) -> &'static str {
        match self {
            Tag::Error => "oxp_error",
            Tag::Options => "oxp_options",
            Tag::Cancel => "oxp_cancel",
            Tag::Runtime => "oxp_runtime",
            Tag::Session => "oxp_session",
            Tag::Outputs => "oxp_outputs",
            Tag::Pipeline => "oxp_pipeline",
            Tag::Run => "oxp_run",
            Tag::Tokenizer => "oxp_tokenizer",
            Tag::DecodeStream => "oxp_decode_stream",
            Tag::ChatTemplate => "oxp_chat_template",
            Tag::Batch => "oxp_batch",
        }
    }
}

/// An object that C may hold a handle of.
pub(super) trait Object: Send + Sync + Sized + 'static {
    /// The header's opaque type.
    type Opaque;
    const TAG: Tag;
}

/// An object in the table.
pub(super) struct Slot<T>(T);

impl<T> Deref for Slot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// State that calls change.
pub(super) trait State {
    /// Undoes what a call that ended in a panic may have left half-done.
    fn roll_back(&mut self);
}

/// An object that takes one call at a time; overlapping calls are refused, not queued.
pub(super) struct Serial<T: State>(Mutex<Entered<T>>);

struct Entered<T> {
    state: T,
    /// The last call that was in here ended in a panic.
    interrupted: bool,
}

impl<T: State> Serial<T> {
    pub fn new(state: T) -> Self {
        Serial(Mutex::new(Entered {
            state,
            interrupted: false,
        }))
    }

    pub fn enter(&self) -> Result<Turn<'_, T>> {
        let Some(mut entered) = self.0.try_lock() else {
            return Err(Failure::new(
                OXP_ERR_BUSY,
                "another call is using this handle (another thread's, or the one that called this \
                 callback); it takes one call at a time",
            ));
        };
        // Here and not while the panic unwinds, where a second one would be the end.
        if entered.interrupted {
            entered.state.roll_back();
            entered.interrupted = false;
        }
        Ok(Turn(entered))
    }
}

/// A call's turn with a serial object.
pub(super) struct Turn<'s, T>(MutexGuard<'s, Entered<T>>);

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.state
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.state
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0.interrupted |= std::thread::panicking();
    }
}

/// The high byte of every handle: such addresses exist on no supported system.
const MARK: u64 = 0xA9;
const COUNT_BITS: u32 = 48;

fn parts(handle: u64) -> (u64, u8, u64) {
    (
        handle >> 56,
        (handle >> COUNT_BITS) as u8,
        handle & ((1 << COUNT_BITS) - 1),
    )
}

type Entry = Arc<dyn Any + Send + Sync>;

const SHARDS: usize = 16;
static TABLE: [RwLock<BTreeMap<u64, Entry>>; SHARDS] = [const { RwLock::new(BTreeMap::new()) }; SHARDS];
static NEXT: AtomicU64 = AtomicU64::new(1);

fn shard(handle: u64) -> &'static RwLock<BTreeMap<u64, Entry>> {
    &TABLE[handle as usize % SHARDS]
}

/// Puts an object into the table. Whoever gets the handle frees it.
pub(super) fn create<T: Object>(value: T) -> *mut T::Opaque {
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let handle = MARK << 56 | u64::from(T::TAG as u8) << COUNT_BITS | count;
    shard(handle).write().insert(handle, Arc::new(Slot(value)));
    std::ptr::without_provenance_mut(handle as usize)
}

/// The object of a live handle of the right type.
pub(super) fn get<T: Object>(handle: *const T::Opaque, what: &str) -> Result<Arc<Slot<T>>> {
    let number = handle.addr() as u64;
    let found = shard(number).read().get(&number).cloned();
    found
        .and_then(|entry| entry.downcast::<Slot<T>>().ok())
        .ok_or_else(|| invalid::<T>(number, what))
}

/// As [`get`], but NULL means that the argument is left out.
pub(super) fn get_optional<T: Object>(handle: *const T::Opaque, what: &str) -> Result<Option<Arc<Slot<T>>>> {
    match handle.is_null() {
        true => Ok(None),
        false => get(handle, what).map(Some),
    }
}

/// Takes a handle out of the table. What is not a live handle of this type stays as it is.
/// The object is handed back so that it is dropped outside of the table's lock.
pub(super) fn remove<T: Object>(handle: *mut T::Opaque) -> Option<Arc<dyn Any + Send + Sync>> {
    let number = handle.addr() as u64;
    let mut entries = shard(number).write();
    match entries.get(&number)?.is::<Slot<T>>() {
        true => entries.remove(&number),
        false => None,
    }
}

fn invalid<T: Object>(number: u64, what: &str) -> Failure {
    let expected = T::TAG.name();
    let (mark, tag, count) = parts(number);
    let issued = count != 0 && count < NEXT.load(Ordering::Relaxed);
    let found = Tag::ALL.into_iter().find(|known| *known as u8 == tag);
    let message = match found {
        _ if number == 0 => format!("{what} is NULL; pass an {expected} that is open"),
        Some(found) if mark == MARK && issued && found != T::TAG => {
            format!("{what} is an {}, expected an {expected}", found.name())
        }
        Some(_) if mark == MARK && issued => format!("{what}: this {expected} has been freed"),
        _ => format!("{what} is no handle of this library; pass an {expected} that is open"),
    };
    Failure::new(OXP_ERR_INVALID_HANDLE, message)
}
