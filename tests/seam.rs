//! The seam: what a tensor may be, and which requests reach a backend at all.

use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, Backend, CancelToken, ComponentError, ComponentErrorKind, ComponentIo, ComponentSession,
    ComponentTensor, DataType, Dim, Input, MAX_RANK, Output, OutputResult, Port, PortType, RunControl, Shape,
    TensorError, TensorView, byte_len, copied_bytes,
};

/// Copies its inputs to outputs of the same position and records what reached it.
struct Echo {
    io: ComponentIo,
    runs: usize,
    saw_unaligned: bool,
}

fn port(name: &str, ty: PortType, dims: Option<Vec<Dim>>) -> Port {
    Port {
        name: name.into(),
        ty,
        dims,
        optional: false,
    }
}

fn tensor(name: &str, dtype: DataType, dims: Vec<Dim>) -> Port {
    port(name, PortType::Tensor(dtype), Some(dims))
}

fn symbol(name: &str) -> Dim {
    Dim::Symbol(Some(name.into()))
}

impl Echo {
    fn new() -> Self {
        let mut optional = tensor("bias", DataType::Float32, vec![]);
        optional.optional = true;
        Echo {
            io: ComponentIo {
                inputs: vec![
                    tensor(
                        "x",
                        DataType::Float32,
                        vec![Dim::Fixed(1), symbol("sequence"), Dim::Fixed(4)],
                    ),
                    tensor("ids", DataType::Int64, vec![symbol("sequence")]),
                    optional,
                ],
                outputs: vec![
                    tensor(
                        "y",
                        DataType::Float32,
                        vec![Dim::Fixed(1), symbol("sequence"), Dim::Fixed(4)],
                    ),
                    port("text", PortType::Other("tensor(string)".into()), None),
                ],
            },
            runs: 0,
            saw_unaligned: false,
        }
    }
}

impl ComponentSession for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn backend(&self) -> Backend {
        Backend::Native
    }

    fn io(&self) -> &ComponentIo {
        &self.io
    }

    fn metadata(&self) -> &[(String, String)] {
        &[]
    }

    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        let x = inputs
            .iter()
            .find(|(name, _)| *name == "x")
            .map(|(_, shape)| Shape::from(*shape));
        Ok(outputs.iter().map(|_| x.clone()).collect())
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        _control: &RunControl,
    ) -> Result<(), ComponentError> {
        self.runs += 1;
        self.saw_unaligned |= inputs.iter().any(|input| !input.value.is_aligned());
        let x = inputs.iter().find(|input| input.name == "x").unwrap().value;
        for output in outputs {
            output.result = match output.fitting_room(x.dtype(), x.bytes().len()) {
                Some(room) => {
                    for (to, from) in room.iter_mut().zip(x.bytes()) {
                        to.write(*from);
                    }
                    OutputResult::InRoom {
                        dtype: x.dtype(),
                        shape: x.shape().into(),
                    }
                }
                None => OutputResult::Owned(x.to_tensor().unwrap()),
            };
        }
        Ok(())
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn run(echo: &mut Echo, inputs: &[Input<'_>], outputs: &[&str]) -> Result<(), ComponentError> {
    let mut outputs: Vec<_> = outputs.iter().map(|name| Output::alloc(name)).collect();
    let session: &mut dyn ComponentSession = echo;
    session.run(inputs, &mut outputs, &RunControl::default())
}

#[test]
fn dtype_codes_are_those_of_tensor_proto() {
    let expected = [
        (1, "float32", 4),
        (2, "uint8", 1),
        (3, "int8", 1),
        (4, "uint16", 2),
        (5, "int16", 2),
        (6, "int32", 4),
        (7, "int64", 8),
        (9, "bool", 1),
        (10, "float16", 2),
        (12, "uint32", 4),
        (13, "uint64", 8),
        (16, "bfloat16", 2),
        (17, "float8e4m3fn", 1),
        (19, "float8e5m2", 1),
    ];
    let found: Vec<_> = DataType::ALL
        .iter()
        .map(|d| (d.code(), d.name(), d.size()))
        .collect();
    assert_eq!(found, expected);
    for code in 0..100 {
        let known = expected.iter().any(|(known, ..)| *known == code);
        assert_eq!(DataType::from_code(code).is_some(), known, "code {code}");
    }
}

#[test]
fn byte_lengths_are_checked_before_a_byte_is_read() {
    assert_eq!(byte_len(DataType::Float32, &[]), Ok(4));
    assert_eq!(byte_len(DataType::Int64, &[2, 3]), Ok(48));
    assert_eq!(byte_len(DataType::Float16, &[5, 0, 7]), Ok(0));
    assert_eq!(byte_len(DataType::Uint8, &[i64::MAX]), Ok(i64::MAX as usize));
    assert!(matches!(
        byte_len(DataType::Float32, &[1, -1]),
        Err(TensorError::NegativeDim { axis: 1, .. })
    ));
    for shape in [
        [i64::MAX, 2],
        [1 << 32, 1 << 31],
        [i64::MAX, i64::MAX],
        // A zero dim excuses nothing: the rest must still be addressable.
        [i64::MAX, 0],
    ] {
        assert!(
            matches!(
                byte_len(DataType::Float32, &shape),
                Err(TensorError::Overflow { .. })
            ),
            "{shape:?}"
        );
    }
    assert_eq!(byte_len(DataType::Uint8, &[1; MAX_RANK]), Ok(1));
    assert_eq!(
        byte_len(DataType::Uint8, &[1; MAX_RANK + 1]),
        Err(TensorError::RankTooHigh { rank: MAX_RANK + 1 })
    );
}

#[test]
fn a_tensor_cannot_hold_a_wrong_length() {
    for found in [0, 63, 65, 128] {
        let error = ComponentTensor::from_raw(DataType::Float32, &[1, 16], &vec![0; found]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("byte_len {found} does not match shape [1, 16] of float32 (64 bytes)")
        );
    }
    assert!(matches!(
        ComponentTensor::zeros(DataType::Uint8, &[1 << 62]),
        Err(TensorError::OutOfMemory { bytes }) if bytes == 1 << 62
    ));
    let bytes: Vec<u8> = (0..64).collect();
    let tensor = ComponentTensor::from_raw(DataType::Float32, &[1, 16], &bytes).unwrap();
    assert_eq!(tensor.bytes(), bytes);
    assert_eq!(tensor.bytes().as_ptr().addr() % AlignedBytes::ALIGN, 0);
}

#[test]
fn every_dtype_keeps_its_bytes_at_every_rank() {
    for dtype in DataType::ALL {
        for shape in [
            &[][..],
            &[3],
            &[2, 3],
            &[1, 2, 3],
            &[2, 1, 3, 2],
            &[1, 2, 1, 3, 2],
            &[2, 0, 3],
        ] {
            let len = byte_len(dtype, shape).unwrap();
            let bytes: Vec<u8> = (0..len).map(|index| (index * 37 + 2) as u8).collect();
            let tensor = ComponentTensor::from_raw(dtype, shape, &bytes).unwrap();
            assert_eq!(
                (tensor.dtype(), tensor.shape(), tensor.bytes()),
                (dtype, shape, &bytes[..])
            );
            let shared = ComponentTensor::from_owner(dtype, shape, Arc::new(bytes.clone())).unwrap();
            assert_eq!(shared.bytes(), bytes);
        }
    }
}

#[test]
fn wrong_requests_never_reach_the_backend() {
    let x_bytes = floats(&[0.0; 8]);
    let ids_bytes = [0; 16];
    let x = |shape: &'static [i64], bytes| Input {
        name: "x",
        value: TensorView::new(DataType::Float32, shape, bytes).unwrap(),
    };
    let good_x = x(&[1, 2, 4], &x_bytes);
    let ids = Input {
        name: "ids",
        value: TensorView::new(DataType::Int64, &[2], &ids_bytes).unwrap(),
    };
    let unknown = Input { name: "z", ..ids };
    let wrong_dtype = Input {
        name: "ids",
        value: TensorView::new(DataType::Int32, &[4], &ids_bytes).unwrap(),
    };

    let mut echo = Echo::new();
    let cases: [(&[Input<'_>], &[&str], &str); 9] = [
        (
            &[good_x, ids, unknown],
            &["y"],
            r#"component "echo": there is no input "z"; the inputs are "x", "ids", "bias""#,
        ),
        (
            &[good_x],
            &["y"],
            r#"component "echo": input "ids" is missing; it expects int64 [sequence]"#,
        ),
        (
            &[good_x, ids, good_x],
            &["y"],
            r#"component "echo": input "x" was given twice; give each input once"#,
        ),
        (
            &[good_x, wrong_dtype],
            &["y"],
            r#"component "echo": input "ids" is int32, expected int64; convert it first, types are never converted here"#,
        ),
        (
            &[x(&[2, 4], &x_bytes), ids],
            &["y"],
            r#"component "echo": input "x" has shape [2, 4] of rank 2, expected [1, sequence, 4] of rank 3"#,
        ),
        (
            &[x(&[2, 1, 4], &x_bytes), ids],
            &["y"],
            r#"component "echo": input "x" has shape [2, 1, 4], expected [1, sequence, 4]: dim 0 must be 1"#,
        ),
        (
            &[good_x, ids],
            &["z"],
            r#"component "echo": there is no output "z"; the outputs are "y", "text""#,
        ),
        (
            &[good_x, ids],
            &["y", "y"],
            r#"component "echo": output "y" was asked for twice; ask for each output once"#,
        ),
        (
            &[good_x, ids],
            &["text"],
            r#"component "echo": port "text" is tensor(string), a type that does not cross this interface"#,
        ),
    ];
    for (inputs, outputs, message) in cases {
        let error = run(&mut echo, inputs, outputs).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.component, "echo");
        assert!(error.port().is_some(), "{message}");
    }
    assert_eq!(echo.runs, 0);
    run(&mut echo, &[good_x, ids], &["y"]).unwrap();
    assert_eq!(echo.runs, 1, "a refused request leaves the session usable");
}

#[test]
fn unaligned_inputs_cost_one_counted_copy_and_aligned_ones_none() {
    let ids_bytes = AlignedBytes::try_zeroed(16).unwrap();
    let ids = Input {
        name: "ids",
        value: TensorView::new(DataType::Int64, &[2], &ids_bytes).unwrap(),
    };
    let values = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let mut memory = AlignedBytes::try_zeroed(33).unwrap();
    for (offset, copied) in [(0, 0), (1, 32)] {
        memory[offset..offset + 32].copy_from_slice(&values);
        let x = Input {
            name: "x",
            value: TensorView::new(DataType::Float32, &[1, 2, 4], &memory[offset..offset + 32]).unwrap(),
        };
        let mut echo = Echo::new();
        let before = copied_bytes();
        let mut outputs = [Output::alloc("y")];
        let session: &mut dyn ComponentSession = &mut echo;
        session
            .run(&[ids, x], &mut outputs, &RunControl::default())
            .unwrap();
        if let (Some(before), Some(after)) = (before, copied_bytes()) {
            assert_eq!(after - before, copied);
        }
        let OutputResult::Owned(y) = &outputs[0].result else {
            panic!("no room was given")
        };
        assert_eq!(y.bytes(), values);
        assert!(!echo.saw_unaligned);
    }
}

#[test]
fn bounds_are_told_without_a_run() {
    let mut echo = Echo::new();
    let session: &mut dyn ComponentSession = &mut echo;
    let bound = session
        .output_bound(
            &[
                ("x", DataType::Float32, &[1, 9, 4]),
                ("ids", DataType::Int64, &[9]),
            ],
            &["y"],
        )
        .unwrap();
    assert_eq!(bound, [Some((DataType::Float32, Shape::from_slice(&[1, 9, 4])))]);
    let error = session
        .output_bound(
            &[
                ("x", DataType::Float32, &[1, 9, 5]),
                ("ids", DataType::Int64, &[9]),
            ],
            &["y"],
        )
        .unwrap_err();
    assert!(matches!(
        error.kind(),
        ComponentErrorKind::WrongDim {
            axis: 2,
            expected_dim: 4,
            ..
        }
    ));
    assert_eq!(echo.runs, 0);
}

#[test]
fn cancel_and_deadline_are_seen_from_any_clone() {
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: None,
    };
    assert!(control.is_bounded() && !control.should_stop());
    std::thread::spawn(move || token.request()).join().unwrap();
    assert!(control.should_stop());
    let passed = RunControl {
        cancel: None,
        deadline: Some(std::time::Instant::now()),
    };
    assert!(passed.should_stop());
    assert!(!RunControl::default().is_bounded());
}
