use std::fmt::{self, Display};
use std::path::PathBuf;

use thiserror::Error;

use crate::component::{joined, quoted, shown};

/// Where in a package something was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The metadata file, as it lies on disk or as it was named in memory.
    pub file: PathBuf,
    /// Counted from 1; `None` where the format does not tell.
    pub line: Option<u64>,
    /// The path of keys, `pipeline.models.decoder.io.kv_inputs[1]`; empty for the file itself.
    pub key: String,
}

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(f)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", shown(&self.key))?;
        }
        Ok(())
    }
}

/// A package that cannot be used, and where it says so.
#[derive(Debug)]
pub struct PackageError(Box<(Location, PackageErrorKind)>);

impl PackageError {
    pub fn new(location: Location, kind: PackageErrorKind) -> Self {
        PackageError(Box::new((location, kind)))
    }

    pub fn location(&self) -> &Location {
        &self.0.0
    }

    pub fn kind(&self) -> &PackageErrorKind {
        &self.0.1
    }

    /// The component that the error is about, if it is about one.
    pub fn component(&self) -> Option<&str> {
        match self.kind() {
            PackageErrorKind::UnknownPort { component, .. }
            | PackageErrorKind::UnresolvedPort { component, .. }
            | PackageErrorKind::Unfed { component, .. }
            | PackageErrorKind::PortMismatch { component, .. } => Some(component),
            _ => None,
        }
    }

    /// The port that the error is about, if it is about one.
    pub fn port(&self) -> Option<&str> {
        match self.kind() {
            PackageErrorKind::UnknownPort { port, .. }
            | PackageErrorKind::Unfed { port, .. }
            | PackageErrorKind::PortMismatch { port, .. } => Some(port),
            _ => None,
        }
    }
}

impl Display for PackageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A folder given by the empty path has no name to begin with.
        if self.location() == &Location::default() {
            return self.kind().fmt(f);
        }
        write!(f, "{}: {}", self.location(), self.kind())
    }
}

impl std::error::Error for PackageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.kind())
    }
}

/// What is wrong with a package.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PackageErrorKind {
    /// There is no metadata file that a reader knows.
    #[error("no package here; looked for {}", .looked_for.join(", "))]
    NoMetadata { looked_for: Vec<String> },
    #[error("cannot read: {source}")]
    Io { source: std::io::Error },
    /// Not YAML or JSON.
    #[error("{message}")]
    Syntax { message: String },
    #[error("is {found}, expected {expected}")]
    WrongType { found: String, expected: String },
    /// A value that a known field does not take.
    #[error("unknown value \"{}\"; it is one of {}", shown(.found), quoted(.known))]
    UnknownValue { found: String, known: Vec<String> },
    #[error("is missing; {expected}")]
    MissingField { expected: String },
    #[error("{message}")]
    Invalid { message: String },
    #[error("path \"{}\" {why}; paths in a package are relative and stay inside it", shown(.path))]
    BadPath { path: String, why: String },
    #[error("there is no file \"{}\" in the package", shown(.path))]
    MissingFile { path: String },
    #[error("there is no component \"{}\"; the components are {}", shown(.found), quoted(.known))]
    UnknownComponent { found: String, known: Vec<String> },
    #[error("component \"{}\" has no {direction} \"{}\"; it has {}", shown(.component), shown(.port), quoted(.known))]
    UnknownPort {
        component: String,
        port: String,
        direction: &'static str,
        known: Vec<String>,
    },
    /// A role that no binding names and that shapes and dtypes do not settle.
    #[error("component \"{component}\" does not say which port is its {role}; {}", candidate_list(.candidates))]
    UnresolvedPort {
        component: String,
        role: &'static str,
        candidates: Vec<String>,
    },
    /// A port of the loop's components that nothing feeds and that is no plain request input.
    #[error("input \"{port}\" of component \"{component}\" is fed by nothing: {advice}")]
    Unfed {
        component: String,
        port: String,
        advice: String,
    },
    /// A port whose dtype or shape cannot play the part that the package gives it.
    #[error("port \"{port}\" of component \"{component}\" is {found}, expected {expected}")]
    PortMismatch {
        component: String,
        port: String,
        found: String,
        expected: String,
    },
    #[error("input \"{port}\" already has an edge, at {first}; one edge per destination")]
    DuplicateEdge { port: String, first: Location },
    #[error("the components feed each other in a circle: {}", joined(.path, "", " -> "))]
    Cycle { path: Vec<String> },
    /// Understood, but not done by this version.
    #[error("{what} is not supported yet")]
    Unsupported { what: String },
    #[error("required capability \"{}\" is not one of {}; this version cannot run the package", shown(.found), quoted(.known))]
    UnknownCapability { found: String, known: Vec<String> },
}

fn candidate_list(names: &[String]) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        if names.is_empty() {
            return f.write_str("no port has the dtype and rank for it");
        }
        write!(f, "candidates are {}", quoted(names))
    })
}
