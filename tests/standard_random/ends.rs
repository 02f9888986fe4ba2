//! Elementwise functions at the ends of their range, where a formula written down as it stands
//! overflows or loses what is small: against the same function in twice the precision.

use oxpipe::component::ModelSource;
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node};

fn native(op_type: &str, x: &[f32]) -> Vec<f32> {
    let model = Model::new()
        .opset("", 22)
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new(op_type, &["x"], &["y"]));
    let source = ModelSource::Memory {
        label: "test".into(),
        model: std::sync::Arc::new(model.encode()),
        external: Vec::new(),
    };
    let mut session = NativeSession::load("part", &source, &NativeOptions::default()).unwrap();
    let x = Tensor::from_slice(&[x.len()], x).unwrap();
    let y = session.run_tensors(&[("x", x.view())], &["y"]).unwrap();
    y[0].view().slice::<f32>().unwrap().to_vec()
}

#[test]
fn functions_keep_their_precision_at_the_ends_of_their_range() {
    // ln(1 + e^x), by the first terms of its series where e^x is small.
    fn softplus(x: f64) -> f64 {
        let small = x.exp();
        match x < -10.0 {
            true => small - small * small / 2.0,
            false => (1.0 + small).ln(),
        }
    }
    // ln(2 x), which is all there is of them for large x.
    fn asinh(x: f64) -> f64 {
        match x.abs() > 1e10 {
            true => (x.abs().ln() + std::f64::consts::LN_2).copysign(x),
            false => x.asinh(),
        }
    }
    type Case<'a> = (&'a str, fn(f64) -> f64, &'a [f32]);
    let cases: [Case<'_>; 4] = [
        (
            "Asinh",
            asinh,
            &[f32::MAX, f32::MIN, 2e38, -1.8e38, 1e19, 3e-20, -1e-3, 0.5, -7.0],
        ),
        (
            "Acosh",
            |x| match x > 1e10 {
                true => asinh(x),
                false => x.acosh(),
            },
            &[f32::MAX, 2e38, 1e19, 1e4, 2.0, 1.0, 1.001],
        ),
        (
            "Softplus",
            softplus,
            &[
                -80.0, -40.0, -18.0, -15.0, -12.0, -5.0, 0.0, 1.0, 20.0, 90.0, 3e38,
            ],
        ),
        (
            "Mish",
            |x| x * softplus(x).tanh(),
            &[-80.0, -40.0, -18.0, -15.0, -12.0, -5.0, 0.0, 1.0, 20.0, 90.0],
        ),
    ];
    for (op_type, exact, x) in cases {
        for (&x, y) in x.iter().zip(native(op_type, x)) {
            let expected = match x > 100.0 && op_type == "Softplus" {
                true => f64::from(x),
                false => exact(f64::from(x)),
            };
            let bound = 1e-6 * expected.abs();
            assert!(
                (f64::from(y) - expected).abs() <= bound,
                "{op_type}({x}) is {y}, not {expected}"
            );
        }
    }
}
