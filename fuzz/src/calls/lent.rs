//! Reads all of what a call lends, so that AddressSanitizer sees what is not there.

use std::hint::black_box;

/// Text that ends with a NUL, of a length where that is told.
pub fn text(at: u64, len: Option<u64>) -> String {
    assert_ne!(at, 0, "text is lent at NULL");
    // SAFETY: the library says that there is text, which is what is tested.
    let text = unsafe { std::ffi::CStr::from_ptr(at as *const libc::c_char) };
    match len {
        None => text.to_str().expect("text is UTF-8").to_owned(),
        Some(len) => {
            let bytes = bytes(at, len + 1);
            assert_eq!(bytes.last(), Some(&0), "text ends with a NUL");
            let text = std::str::from_utf8(&bytes[..len as usize]).expect("text is UTF-8");
            text.to_owned()
        }
    }
}

pub fn bytes(at: u64, len: u64) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    assert_ne!(at, 0, "{len} bytes are lent at NULL");
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) };
    black_box(bytes.to_vec())
}

pub fn word(memory: &[u8], at: usize) -> u64 {
    let bytes = memory
        .get(at..at + 8)
        .map_or([0; 8], |bytes| bytes.try_into().unwrap_or_default());
    u64::from_le_bytes(bytes)
}

pub fn half(memory: &[u8], at: usize) -> u32 {
    word(&[memory.get(at..at + 4).unwrap_or_default(), &[0; 4]].concat(), 0) as u32
}

/// oxp_tensor_in.
pub fn tensor(memory: &[u8]) {
    let (data, byte_len, shape, rank) = (
        word(memory, 8),
        word(memory, 16),
        word(memory, 24),
        half(memory, 32),
    );
    bytes(data, byte_len);
    bytes(shape, u64::from(rank) * 8);
}

/// oxp_port_info.
fn port(memory: &[u8]) {
    text(word(memory, 8), Some(word(memory, 16)));
    text(word(memory, 24), Some(word(memory, 32)));
    let rank = half(memory, 56);
    bytes(word(memory, 40), u64::from(rank) * 8);
    for at in 0..rank as usize {
        let names = bytes(word(memory, 48), u64::from(rank) * 8);
        text(word(&names, at * 8), None);
    }
}

/// oxp_event.
pub fn event(memory: &[u8]) {
    if word(memory, 16) != 0 {
        text(word(memory, 16), Some(word(memory, 24)));
    }
    let latents = bytes(word(memory, 96), word(memory, 104) * 40);
    latents.chunks_exact(40).for_each(tensor);
    bytes(word(memory, 112), word(memory, 120) * 8);
}

/// A struct of the type that a call has filled whole.
pub fn structure(ty: &str, memory: &[u8]) {
    match ty {
        "oxp_port_info *" => port(memory),
        "oxp_event *" => event(memory),
        "oxp_tensor_in *" => tensor(memory),
        "oxp_component_info *" => {
            for at in [8, 24, 40, 56, 72] {
                text(word(memory, at), Some(word(memory, at + 8)));
            }
        }
        "oxp_pipeline_info *" => {
            for at in [8, 24, 40, 56] {
                text(word(memory, at), Some(word(memory, at + 8)));
            }
            bytes(word(memory, 72), word(memory, 80) * 4);
        }
        _ => {}
    }
}
