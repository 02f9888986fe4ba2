//! The protobuf wire format, as far as [`declared`](super::declared) needs it: the fields
//! of a message, one after the other, without copying.
//!
//! <https://protobuf.dev/programming-guides/encoding/>

/// The bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The value of a field. Groups, which ONNX does not use, are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Value<'a> {
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// A string; ONNX's strings are UTF-8, and what is not shows as replacement characters.
    pub fn string(self) -> Result<String, Malformed> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub fn int(self) -> Result<i64, Malformed> {
        match self {
            Value::Varint(value) => Ok(value as i64),
            _ => Err(Malformed),
        }
    }
}

/// The fields of a message.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Fields(message)
    }

    fn next_field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| Malformed)?)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok((key >> 3, value))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let &[byte] = self.take(1)? else {
                return Err(Malformed);
            };
            // The tenth byte's upper bits fall off, as they do in protobuf's own reader.
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Vec<Result<(u64, Value<'_>), Malformed>> {
        Fields::new(bytes).collect()
    }

    #[test]
    fn fields_of_each_wire_type() {
        let message = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 3, b'a', b'b', b'c'],
            &[0x1d, 0, 0, 0, 0],
            &[0x21, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ]
        .concat();
        assert_eq!(
            fields(&message),
            [
                Ok((1, Value::Varint(150))),
                Ok((2, Value::Bytes(b"abc"))),
                Ok((3, Value::Fixed)),
                Ok((4, Value::Fixed)),
                Ok((5, Value::Varint(u64::MAX))),
            ]
        );
    }

    #[test]
    fn broken_messages_end_in_malformed() {
        for broken in [
            &[0x08][..],                                                  // no value
            &[0x12, 5, b'a'],                                             // shorter than it says
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],               // absurd length
            &[0x0b],                                                      // a group
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], // too long a varint
        ] {
            assert_eq!(fields(broken), [Err(Malformed)], "{broken:?}");
        }
    }
}
