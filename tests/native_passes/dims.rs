//! Single dims of a value.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};

use crate::harness::{Case, typed};
use crate::typed::node;

const PASS: &str = "dim";

/// An element of Shape(x), x [2, 3, 5], cast if `to` says so.
struct Single {
    shape: Node,
    index: Tensor,
    to: Option<i32>,
    dims: &'static str,
}

impl Single {
    fn new(index: Tensor) -> Self {
        Single {
            shape: node("Shape", &["x"], &["s"]),
            index,
            to: None,
            dims: "[a, b, c]",
        }
    }

    fn case(self) -> Case {
        let result = self.to.unwrap_or(INT64);
        let mut model = Model::new()
            .opset("", 21)
            .input("x", FLOAT, self.dims)
            .output("y", result, "[...]")
            .initializer(self.index)
            .node(self.shape);
        model = match self.to {
            None => model.node(node("Gather", &["s", "i"], &["y"])),
            Some(to) => model
                .node(node("Gather", &["s", "i"], &["g"]))
                .node(node("Cast", &["g"], &["y"]).int("to", to.into())),
        };
        Case::new(
            model,
            &[("x", typed(ElementType::Float32, 7, &[2, 3, 5]))],
            &["y"],
        )
    }
}

fn at(index: i64) -> Tensor {
    Tensor::ints("i", &[], &[index])
}

#[test]
fn one_dim_of_a_shape() {
    for index in [0, 1, 2, -1, -3] {
        Single::new(at(index)).case().check(PASS, 1, 0.0);
        let vector = Tensor::ints("i", &[1], &[index]);
        Single::new(vector).case().check(PASS, 1, 0.0);
        for to in [INT32, INT64] {
            let cast = Single {
                to: Some(to),
                ..Single::new(at(index))
            };
            // A cast to int64 is none.
            let times = if to == INT32 { 2 } else { 1 };
            cast.case().check(PASS, times, 0.0);
        }
    }
    for (start, end, index) in [(1, 3, 0), (1, 3, -1), (-2, 3, 1), (0, -1, -1), (-9, 9, 2)] {
        let part = Single {
            shape: node("Shape", &["x"], &["s"]).int("start", start).int("end", end),
            ..Single::new(at(index))
        };
        part.case().check(PASS, 1, 0.0);
    }
}

#[test]
fn what_is_no_single_dim_stays() {
    Single::new(Tensor::ints("i", &[2], &[0, 1])).case().refuses(PASS);
    Single::new(Tensor::ints("i", &[1, 1], &[1])).case().refuses(PASS);
    let float = Single {
        to: Some(FLOAT),
        ..Single::new(at(1))
    };
    // The Gather still is.
    float.case().check(PASS, 1, 0.0);
    let known = Single {
        dims: "[2, 3, 5]",
        ..Single::new(at(1))
    };
    known.case().refuses(PASS);
    let any = Single {
        dims: "[...]",
        ..Single::new(at(1))
    };
    any.case().refuses(PASS);
}
