//! Tensors that benches are fed with, described first and made when a bench is run.

use half::{bf16, f16};
use oxpipe::component::{ComponentTensor, DataType};
use oxpipe_test_support::onnx_writer::Tensor;

#[derive(Clone, Debug)]
pub struct Values {
    pub dtype: DataType,
    pub dims: Vec<i64>,
    fill: Fill,
}

#[derive(Clone, Debug)]
enum Fill {
    /// Floats from -1 to 1, or any integers.
    Noise,
    /// Integers from 0 to below this.
    Below(u64),
    These(Vec<i64>),
}

pub fn noise(dtype: DataType, dims: &[usize]) -> Values {
    Values::new(dtype, dims, Fill::Noise)
}

/// Integers from 0 to below `end`.
pub fn indices(dtype: DataType, dims: &[usize], end: u64) -> Values {
    Values::new(dtype, dims, Fill::Below(end))
}

pub fn integers(dtype: DataType, dims: &[usize], values: &[i64]) -> Values {
    Values::new(dtype, dims, Fill::These(values.into()))
}

impl Values {
    fn new(dtype: DataType, dims: &[usize], fill: Fill) -> Self {
        let dims = dims.iter().map(|&dim| dim as i64).collect();
        Values { dtype, dims, fill }
    }

    pub fn len(&self) -> usize {
        self.dims.iter().product::<i64>() as usize
    }

    pub fn byte_len(&self) -> usize {
        self.len() * self.dtype.size()
    }

    pub fn tensor(&self) -> ComponentTensor {
        ComponentTensor::from_raw(self.dtype, &self.dims, &self.bytes()).expect("as many bytes as dims say")
    }

    pub fn initializer(&self, name: &str) -> Tensor {
        Tensor::raw(name, self.dtype.code() as i32, &self.dims, &self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 32
        };
        let mut bytes = Vec::with_capacity(self.byte_len());
        for i in 0..self.len() {
            match &self.fill {
                Fill::Noise => {
                    let bits = random();
                    let float = bits as f32 / (1u64 << 31) as f32 - 1.0;
                    match self.dtype {
                        DataType::Float32 => bytes.extend(float.to_le_bytes()),
                        DataType::Float16 => bytes.extend(f16::from_f32(float).to_le_bytes()),
                        DataType::Bfloat16 => bytes.extend(bf16::from_f32(float).to_le_bytes()),
                        _ => self.push(bits as i64, &mut bytes),
                    }
                }
                Fill::Below(end) => self.push((random() % end) as i64, &mut bytes),
                Fill::These(values) => self.push(values[i], &mut bytes),
            }
        }
        bytes
    }

    /// The low bytes of an integer.
    fn push(&self, value: i64, bytes: &mut Vec<u8>) {
        bytes.extend(&value.to_le_bytes()[..self.dtype.size()]);
    }
}
