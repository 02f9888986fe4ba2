//! A run as bytes, and a run of bytes: a host keeps what a conversation has come to, and goes on
//! with it later, in another process.
//!
//! The bytes are `OXPSTATE`, the version (u32, 1), 0 (u32), how many bytes follow the check (u64),
//! the check of those (XXH3, 128 bits), and the fields of [`fields`], by the rules of [`wire`].
//! The first are the package's name for people and its fingerprint, then the settings of the run:
//! a state of another package or of other settings is refused. What cannot be made again is in
//! there: tokens, KV, states, inputs, outputs. What follows from these is made again: the text so
//! far, positions, masks.

mod fields;
pub(super) mod wire;

use twox_hash::XxHash3_128;

use super::identity::Identity;
use super::settings::RunSettings;
use super::{Pipeline, PipelineError, RequestError, Run};

use wire::{Problem, Wire, wrong};

const MAGIC: [u8; 8] = *b"OXPSTATE";
const VERSION: u32 = 1;
/// Bytes before those that are checked.
const HEADER: usize = 8 + 4 + 4 + 8 + 16;

impl Run {
    /// How many bytes [`save_into`](Self::save_into) takes now.
    pub fn saved_len(&mut self) -> Result<usize, PipelineError> {
        self.forget_ahead()?;
        let mut wire = Wire::Count(0);
        self.all_fields(&mut wire)
            .map_err(|problem| refused("save", problem))?;
        Ok(HEADER.saturating_add(wire.at()))
    }

    /// Writes all that the run is into `room`, which is of exactly [`saved_len`](Self::saved_len)
    /// bytes. The run stays what it is.
    pub fn save_into(&mut self, room: &mut [u8]) -> Result<(), PipelineError> {
        let found = room.len();
        let (Some((header, body)), needed) = (room.split_at_mut_checked(HEADER), self.saved_len()?) else {
            return Err(refused(
                "save",
                Problem(format!("{found} bytes of room are no state")),
            ));
        };
        if found != needed {
            let message = format!("{found} bytes of room for a state of {needed}");
            return Err(refused("save", Problem(message)));
        }
        let mut wire = Wire::Write { room: body, at: 0 };
        self.all_fields(&mut wire)
            .map_err(|problem| refused("save", problem))?;
        let check = XxHash3_128::oneshot(body);
        let len = body.len() as u64;
        let parts: [&[u8]; 5] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &[0; 4],
            &len.to_le_bytes(),
            &check.to_le_bytes(),
        ];
        for (to, from) in header.iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
        Ok(())
    }

    /// All that the run is, as bytes; see [`save_into`](Self::save_into).
    pub fn save(&mut self) -> Result<Vec<u8>, PipelineError> {
        let mut bytes = vec![0; self.saved_len()?];
        self.save_into(&mut bytes)?;
        Ok(bytes)
    }

    /// A run of what [`save`](Self::save) gave, of the same package and with the same settings but for
    /// `max_tokens`. It goes on by the same tokens. The pipeline may have its components on other
    /// backends, as long as its caches are of the same types.
    ///
    /// The bytes may be anything: what is no state, is cut off, damaged or of another version,
    /// package or setting is an error. Sessions of the host's own are told apart by their ports alone:
    /// that the models are the same is then the caller's to see to.
    pub fn load(pipeline: &Pipeline, settings: &RunSettings, bytes: &[u8]) -> Result<Run, PipelineError> {
        let mut run = Run::new(pipeline, settings)?;
        // Also when it is refused and dropped; and for good, since values that its components made of
        // a prompt stay when its tokens run again.
        run.shares = false;
        let _entered = run.pool.enter();
        let body = body_of(bytes).map_err(|problem| refused("load", problem))?;
        let mut wire = Wire::Read { bytes: body, at: 0 };
        let read = run.all_fields(&mut wire);
        let read = read.and_then(|()| match wire.left() {
            0 => run.check_fields(),
            left => wrong(format!("{left} bytes follow its last field")),
        });
        read.map_err(|Problem(message)| {
            let at = HEADER + wire.at();
            run.pool
                .over_limit("a saved run")
                .unwrap_or_else(|| refused("load", Problem(format!("{message} (before byte {at})"))))
        })?;
        run.replay_text()?;
        Ok(run)
    }

    fn all_fields(&mut self, wire: &mut Wire<'_>) -> wire::Result<()> {
        let identity = self.pipeline.shared().identity.clone();
        check_identity(&identity, wire)?;
        check_settings(&self.settings, wire)?;
        self.fields(wire)
    }
}

/// The checked bytes behind the header.
fn body_of(bytes: &[u8]) -> wire::Result<&[u8]> {
    let mut wire = Wire::Read { bytes, at: 0 };
    if !bytes.starts_with(&MAGIC) {
        return wrong("it does not begin with \"OXPSTATE\"");
    }
    wire.u64(&mut 0)?;
    let (mut version, mut zero, mut len, mut check) = (0, 0, 0, 0);
    wire.u32(&mut version)?;
    if version != VERSION {
        return wrong(format!(
            "it is of version {version}; this library reads version {VERSION}"
        ));
    }
    wire.u32(&mut zero)?;
    wire.u64(&mut len)?;
    wire.u128(&mut check)?;
    let body = bytes.get(HEADER..).unwrap_or_default();
    if zero != 0 || body.len() as u64 != len {
        return wrong(format!(
            "its header says {len} bytes behind it, and there are {}",
            body.len()
        ));
    }
    match XxHash3_128::oneshot(body) == check {
        true => Ok(body),
        false => wrong("its bytes are not those that were saved: the check differs"),
    }
}

fn check_identity(own: &Identity, wire: &mut Wire<'_>) -> wire::Result<()> {
    let mut found = own.clone();
    wire.text(&mut found.name)?;
    wire.u128(&mut found.fingerprint)?;
    match found.fingerprint == own.fingerprint {
        true => Ok(()),
        false => wrong(format!("it is of {found}, and this is {own}; open that package")),
    }
}

fn check_settings(settings: &RunSettings, wire: &mut Wire<'_>) -> wire::Result<()> {
    let own = settings.named();
    wire.same_count("settings", own.len())?;
    for (key, value) in own {
        let (mut found_key, mut found) = (key.to_owned(), value.clone());
        wire.text(&mut found_key)?;
        wire.text(&mut found)?;
        if found_key != key || found != value {
            return wrong(format!(
                "it was saved with {found_key} = {found}, and is loaded with {key} = {value}; give the same"
            ));
        }
    }
    Ok(())
}

fn refused(what: &'static str, Problem(problem): Problem) -> PipelineError {
    RequestError::SavedState { what, problem }.into()
}
