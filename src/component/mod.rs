//! The seam between the step loop and whatever runs a component.
//!
//! What lives here: the fourteen element types ([`DataType`]), owned and borrowed tensors
//! ([`ComponentTensor`], [`TensorView`]), the declared ports of a component
//! ([`ComponentIo`]), the object-safe trait that a backend implements
//! ([`ComponentSession`]) and the errors that name component, port and shapes
//! ([`ComponentError`]).
//!
//! Everything re-exported below may be used from outside. Nothing here knows which
//! backends exist; a backend implements `ComponentSession::execute` and is only ever
//! called through `<dyn ComponentSession>::run`, which checks the request first, so that
//! a wrong request gets the same answer from every backend.

mod cache;
mod control;
mod copies;
mod dtype;
mod error;
mod file;
mod io;
mod memory;
mod session;
mod shown;
mod source;
mod tensor;
mod trace;

pub use cache::{CacheRoom, InPlaceCache};
pub(crate) use cache::{copy_rows, room_len, row_bytes};
pub use control::{CancelToken, CancelWatch, Interrupt, RunControl};
pub(crate) use copies::count_cache_write;
pub use copies::{copied_bytes, count_copy, written_cache_bytes};
pub use dtype::DataType;
pub use error::{ComponentError, ComponentErrorKind};
pub(crate) use file::map_regular;
pub(crate) use file::{FileIdentity, TEXT_LIMIT, TOKENIZER_LIMIT, check_size, open_regular, read_regular};
#[cfg(feature = "native")]
pub(crate) use file::{MappedFile, read_whole};
pub use io::{ComponentIo, Dim, Port, PortType};
pub use memory::{Charge, EnteredAccount, MemoryAccount, Refused};
pub(crate) use session::check_value;
pub use session::{Backend, Call, ComponentSession, Input, Output, OutputResult};
pub(crate) use shown::{joined, listed, quoted, shown};
pub use source::{LocationError, ModelSource, SharedBytes, locate};
pub use tensor::{
    AlignedBytes, ComponentTensor, MAX_RANK, Shape, TensorError, TensorView, byte_len, display_shape,
};
pub use trace::{CALL, COMPONENT, LOAD, OPERATOR, Trace, TraceArgument, TraceSpan, TracedSession};
