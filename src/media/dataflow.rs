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

/// The most transforms, and outputs, of a program.
const MOST: usize = 256;

pub(super) fn check_lengths(transforms: usize, outputs: usize) -> Result<(), ProgramError> {
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
