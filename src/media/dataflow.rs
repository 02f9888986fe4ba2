//! How the values of a preprocessing program find each other.

use std::collections::HashMap;

/// What is wrong with a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {message}")]
pub struct ProgramError {
    pub part: ProgramPart,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramPart {
    Transform(usize),
    Output(usize),
    Whole,
}

impl std::fmt::Display for ProgramPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramPart::Transform(index) => write!(f, "transforms[{index}]"),
            ProgramPart::Output(index) => write!(f, "outputs[{index}]"),
            ProgramPart::Whole => f.write_str("the program"),
        }
    }
}

/// One transform as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform<Op> {
    pub op: Op,
    /// Names of earlier values; `None` is what the transform before has made.
    pub inputs: Option<Vec<String>>,
    /// Names for what it makes; `None` gives it none.
    pub outputs: Option<Vec<String>>,
}

/// What makes a program of its transforms, one after the other, and then of its outputs. Errors
/// say what is wrong; [`build`] adds where.
pub(super) trait Builder: Default {
    type Op;
    type Output;

    fn add(&mut self, transform: Transform<Self::Op>) -> Result<(), String>;

    /// The value of an output.
    fn bind(&mut self, output: &Self::Output) -> Result<usize, String>;
}

/// Outputs with their values.
type Bound<Output> = Vec<(usize, Output)>;

pub(super) fn build<B: Builder>(
    transforms: Vec<Transform<B::Op>>,
    outputs: Vec<B::Output>,
) -> Result<(B, Bound<B::Output>), ProgramError> {
    check_lengths(transforms.len(), outputs.len())?;
    let mut builder = B::default();
    for (index, transform) in transforms.into_iter().enumerate() {
        builder.add(transform).map_err(|message| ProgramError {
            part: ProgramPart::Transform(index),
            message,
        })?;
    }
    let mut bound = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        let source = builder.bind(&output).map_err(|message| ProgramError {
            part: ProgramPart::Output(index),
            message,
        })?;
        bound.push((source, output));
    }
    Ok((builder, bound))
}

/// The most transforms, and outputs, of a program.
const MOST: usize = 256;

fn check_lengths(transforms: usize, outputs: usize) -> Result<(), ProgramError> {
    let message = if transforms == 0 || outputs == 0 {
        "it needs at least one transform and one output".to_owned()
    } else if transforms > MOST || outputs > MOST {
        format!("it has more than {MOST} transforms or outputs")
    } else {
        return Ok(());
    };
    Err(ProgramError {
        part: ProgramPart::Whole,
        message,
    })
}

/// The names of values, as a program is read from its first transform to its last.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<String, usize>,
    /// What the transform before has made.
    previous: Vec<usize>,
}

impl Names {
    pub fn find(&self, name: &str) -> Result<usize, String> {
        let found = self.known.get(name).copied();
        found.ok_or_else(|| format!("no transform before makes \"{name}\""))
    }

    /// The values that a transform works on; without names, what the one before has made.
    pub fn inputs(&self, names: Option<Vec<String>>, is_first: bool) -> Result<Vec<usize>, String> {
        match names {
            Some(names) => names.iter().map(|name| self.find(name)).collect(),
            None if is_first => Ok(Vec::new()),
            None => Ok(self.previous.clone()),
        }
    }

    /// Gives names to what a transform has made.
    pub fn name(&mut self, names: Option<Vec<String>>, made: Vec<usize>) -> Result<(), String> {
        if let Some(names) = names {
            if names.len() != made.len() {
                return Err(format!(
                    "it makes {} values and names {}",
                    made.len(),
                    names.len()
                ));
            }
            for (name, &value) in names.into_iter().zip(&made) {
                if name.is_empty() {
                    return Err("a name is empty".to_owned());
                }
                if self.known.contains_key(&name) {
                    return Err(format!("\"{name}\" is made before; names are given once"));
                }
                self.known.insert(name, value);
            }
        }
        self.previous = made;
        Ok(())
    }
}
