//! Values pass bit for bit.

use oxpipe::component::{AlignedBytes, DataType};
use oxpipe_test_support::onnx_writer::{Model, Node};

use super::harness::*;

fn identity(dtype: DataType, dims: &str) -> Model {
    let code = dtype.code() as i32;
    // Opset 19 is the first in which Identity takes float8.
    Model::new()
        .ir_version(9)
        .opset("", 19)
        .input("x", code, dims)
        .output("y", code, dims)
        .node(Node::new("Identity", &["x"], &["y"]))
}

/// Every byte value in turn: NaNs, denormals, bools that are neither 0 nor 1.
fn any_bytes(length: usize) -> AlignedBytes {
    let bytes: Vec<u8> = (0..length).map(|index| (index * 37 + 251) as u8).collect();
    AlignedBytes::try_from_slice(&bytes).unwrap()
}

const SHAPES: [&[i64]; 10] = [
    &[],
    &[1],
    &[13],
    &[2, 3],
    &[2, 3, 2],
    &[1, 2, 3, 4],
    &[2, 1, 3, 2, 2],
    &[1, 2, 1, 2, 1, 3, 2],
    &[0],
    &[2, 0, 3],
];

#[test]
fn every_type_and_rank_bit_for_bit_and_uncopied() {
    for dtype in DataType::ALL {
        let mut session = load(identity(dtype, "[...]"));
        for shape in SHAPES {
            let count = shape.iter().product::<i64>() as usize;
            let bytes = any_bytes(count * dtype.size());
            let inputs = [input("x", dtype, shape, &bytes)];
            let asks = [alloc("y"), known("y", bytes.len(), shape)];
            for ask in asks {
                let ran = run(&mut session, &inputs, &[ask]);
                let [y] = &ran.got[..] else { panic!("{ran:?}") };
                assert_eq!((y.dtype, &y.shape[..]), (dtype, shape));
                assert_eq!(y.bytes, &bytes[..], "{dtype} {shape:?}");
                assert_eq!(y.in_room, ask.room.is_some());
                assert_nothing_copied(&ran);
            }
        }
    }
}

#[test]
fn every_type_with_declared_dims_goes_into_the_room_without_being_told_the_shape() {
    for dtype in DataType::ALL {
        let mut session = load(identity(dtype, "[batch, 3]"));
        for rows in [0, 1, 5] {
            let shape = [rows, 3];
            let bytes = any_bytes(rows as usize * 3 * dtype.size());
            let ran = run(
                &mut session,
                &[input("x", dtype, &shape, &bytes)],
                &[room("y", bytes.len() + 5)],
            );
            assert_eq!(ran.got[0].bytes, &bytes[..], "{dtype}");
            assert!(ran.got[0].in_room);
            assert_nothing_copied(&ran);
        }
    }
}

#[test]
fn unaligned_inputs_pass_bit_for_bit() {
    for dtype in DataType::ALL {
        let mut session = load(identity(dtype, "[n]"));
        let bytes = any_bytes(6 * dtype.size() + 1);
        let unaligned = &bytes[1..];
        let ran = run(&mut session, &[input("x", dtype, &[6], unaligned)], &[alloc("y")]);
        assert_eq!(ran.got[0].bytes, unaligned, "{dtype}");
        if cfg!(debug_assertions) {
            let expected = if dtype.size() == 1 { 0 } else { unaligned.len() };
            assert_eq!(ran.copied, expected as u64);
        }
    }
}

#[test]
fn an_unaligned_room_is_not_written() {
    let mut session = load(identity(DataType::Float32, "[n]"));
    let bytes = floats(&[1.0, 2.0]);
    let mut memory = [0_u32; 4];
    // SAFETY: 12 of the 16 bytes, borrowed for the run.
    let unaligned = unsafe {
        std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<std::mem::MaybeUninit<u8>>().add(1), 12)
    };
    let mut outputs = [oxpipe::component::Output::into_room("y", unaligned)];
    let inputs = [input("x", DataType::Float32, &[2], &bytes)];
    session.run(&inputs, &mut outputs, &Default::default()).unwrap();
    let oxpipe::component::OutputResult::Owned(tensor) = &outputs[0].result else {
        panic!("{:?}", outputs[0].result)
    };
    assert_eq!(tensor.bytes(), &bytes[..]);
    drop(outputs);
    assert_eq!(memory, [0; 4]);
}

#[test]
fn an_output_outlives_its_session() {
    let mut session = load(identity(DataType::Float32, "[n]"));
    let values: Vec<f32> = (0..100_000).map(|index| index as f32).collect();
    let bytes = floats(&values);
    let mut outputs = [oxpipe::component::Output::alloc("y")];
    let inputs = [input("x", DataType::Float32, &[100_000], &bytes)];
    session.run(&inputs, &mut outputs, &Default::default()).unwrap();
    drop(session);
    let oxpipe::component::OutputResult::Owned(tensor) = &outputs[0].result else {
        panic!("{:?}", outputs[0].result)
    };
    assert_eq!(tensor.bytes(), &bytes[..]);
}
