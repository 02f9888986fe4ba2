//! How many parts a model has, counted before any is decoded.
//!
//! An empty message takes two bytes in a file and some two hundred once it is decoded, in lists that grow
//! without a way to refuse. So the parts are counted where they lie, by the wire format alone: fields of
//! the messages that are decoded, where each takes memory of its own. What tensors hold is passed over.
//! <https://protobuf.dev/programming-guides/encoding>

/// Nodes of a model, those in graphs of nodes included.
pub(super) const MOST_NODES: usize = 1 << 20;
/// Fields of any kind.
pub(super) const MOST_PARTS: usize = 1 << 24;
/// The decoder goes no deeper.
const DEPTH: usize = 100;

/// The messages of which fields are counted.
#[derive(Clone, Copy, PartialEq)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Value,
    Type,
    TensorType,
    /// Of sequences and optionals.
    Element,
    Map,
    /// Values and indices, both tensors.
    SparseTensor,
    /// Whose fields are no messages, or none that have many.
    Leaf,
}

impl Message {
    /// What lies in a field that has a length.
    fn field(self, number: u64) -> Option<Message> {
        use Message as M;
        match (self, number) {
            (M::Model, 7) => Some(M::Graph),
            (M::Model, 25) => Some(M::Function),
            (M::Graph, 1) | (M::Function, 7) => Some(M::Node),
            (M::Graph, 11..=13) => Some(M::Value),
            (M::Graph, 15) => Some(M::SparseTensor),
            (M::Graph, 5) | (M::Attribute, 5) | (M::SparseTensor, 1 | 2) => Some(M::Leaf),
            (M::Node, 5) | (M::Function, 11) => Some(M::Attribute),
            (M::Attribute, 6) => Some(M::Graph),
            (M::Value, 2) | (M::Attribute, 14) | (M::Element, 1) | (M::Map, 2) => Some(M::Type),
            (M::Type, 1 | 8) => Some(M::TensorType),
            (M::Type, 4 | 9) => Some(M::Element),
            (M::Type, 5) => Some(M::Map),
            // Its shape, whose fields are dims.
            (M::TensorType, 2) => Some(M::Leaf),
            _ => None,
        }
    }
}

/// Says what there is too much of.
pub(super) fn check(model: &[u8]) -> Result<(), String> {
    let (mut nodes, mut parts) = (0usize, 0usize);
    // Ends of the messages around the one that is read.
    let mut around: Vec<(Message, &[u8])> = vec![(Message::Model, model)];
    while let Some((message, rest)) = around.last_mut() {
        if rest.is_empty() {
            around.pop();
            continue;
        }
        let message = *message;
        // The decoder skips groups of any field, and reads what is behind them.
        if rest.first().is_some_and(|key| matches!(key & 7, 3 | 4)) {
            return Err("is not an ONNX model: it has a group of fields, which ONNX has none of".into());
        }
        let Some((number, content)) = field(rest) else {
            // Not well-formed: left to the decoder, which gets no further either.
            return Ok(());
        };
        parts += 1;
        if parts > MOST_PARTS {
            return Err(format!("has more than {MOST_PARTS} parts"));
        }
        let Some(content) = content else { continue };
        let Some(inner) = message.field(number) else {
            continue;
        };
        if inner == Message::Node {
            nodes += 1;
            if nodes > MOST_NODES {
                return Err(format!("has more than {MOST_NODES} nodes"));
            }
        }
        if around.len() <= DEPTH * 2 {
            around.push((inner, content));
        }
    }
    Ok(())
}

/// Takes a field off: its number, and its content if it has a length. `None` if it is not well-formed.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(rest)?;
    let fixed = match key & 7 {
        0 => {
            varint(rest)?;
            return Some((key >> 3, None));
        }
        1 => 8,
        5 => 4,
        2 => {
            let len = usize::try_from(varint(rest)?).ok()?;
            let (content, after) = rest.split_at_checked(len)?;
            *rest = after;
            return Some((key >> 3, Some(content)));
        }
        _ => return None,
    };
    *rest = rest.get(fixed..)?;
    Some((key >> 3, None))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(field: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mut number in [usize::from(field) << 3 | 2, content.len()] {
            while number > 0x7F {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes.extend(content);
        bytes
    }

    #[test]
    fn nodes_and_parts_are_counted_wherever_they_are() {
        let empty = |count: usize| [1 << 3 | 2, 0].repeat(count);
        let graph = |content: &[u8]| message(7, content);
        assert_eq!(check(&graph(&empty(MOST_NODES))), Ok(()));
        let many = empty(MOST_NODES + 1);
        let inside = message(1, &message(5, &message(6, &many)));
        // Of a function they have another number.
        let function = message(25, &[7 << 3 | 2, 0].repeat(MOST_NODES + 1));
        for model in [graph(&many), graph(&inside), function] {
            assert!(check(&model).unwrap_err().contains("nodes"));
        }
        // Dims of a value's shape, attributes of a node, and initializers.
        let dims = empty(MOST_PARTS);
        let value = message(11, &message(2, &message(1, &message(2, &dims))));
        let attributes = message(1, &[5 << 3 | 2, 0].repeat(MOST_PARTS));
        let initializers = [5 << 3 | 2, 0].repeat(MOST_PARTS);
        // External data of the values of a sparse one, and its dims.
        let entries = [13 << 3 | 2, 0].repeat(MOST_PARTS);
        let sparse = [message(1, &entries), [3 << 3, 0].repeat(MOST_PARTS)].map(|of| message(15, &of));
        for content in [value, attributes, initializers].into_iter().chain(sparse) {
            assert!(check(&graph(&content)).unwrap_err().contains("parts"));
        }
        // What a tensor holds is one part, and so is a name.
        for field in [1, 4, 9] {
            assert_eq!(check(&graph(&message(5, &message(field, &dims)))), Ok(()));
        }
        assert_eq!(check(&graph(&message(11, &message(1, &dims)))), Ok(()));
        // Groups, which the decoder skips: of a field that is there and one that is not, and alone.
        for group in [&[0x0B, 0x0C][..], &[0x9B, 0x06, 0x9C, 0x06], &[0x0B], &[0x0C]] {
            for model in [
                [group, &graph(&many)].concat(),
                graph(&[group, &many[..]].concat()),
            ] {
                assert!(check(&model).unwrap_err().contains("group"));
            }
        }
        for spoilt in [&[0x0F][..], &[0x3A, 9], &[0xFF; 20], &[0x09, 1]] {
            assert_eq!(check(spoilt), Ok(()));
        }
    }
}
