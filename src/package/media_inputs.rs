//! The inputs of components that programs of images and of sound are for.

use crate::component::{ComponentIo, DataType};
use crate::media::audio::AudioProgram;
use crate::media::image::ImageProgram;
use crate::media::{ImagePlaceholders, PortLayout, TokenCount};

use super::PackageError;
use super::declaration::{Address, Declaration, ProgramDeclaration, Said};
use super::resolve::{mismatch, port_index, said_invalid};
use super::spec::{ComponentSpec, InputSource, MediaInput, MediaSpec};

/// Finds the ports of all programs.
pub(super) fn resolve_media(
    declaration: &Declaration,
    ios: &[ComponentIo],
    components: &[ComponentSpec],
) -> Result<MediaSpec, PackageError> {
    let media = &declaration.media;
    let inputs = Inputs {
        declaration,
        ios,
        components,
    };
    let mut spec = MediaSpec {
        image: media.image.as_ref().map(|image| inputs.of(image)).transpose()?,
        audio: media.audio.as_ref().map(|audio| inputs.of(audio)).transpose()?,
        placeholders: None,
    };
    if let Some(vision) = &media.vision {
        if let Some(image) = &media.image {
            check_vision(vision, &image.program)?;
        }
        spec.placeholders = Some(vision.value.clone());
    }
    Ok(spec)
}

/// What the programs of images and of sound have in common.
trait Program: Clone {
    fn dtypes(&self) -> Vec<DataType>;

    /// Leaves the outputs out that have `false`.
    fn keep_outputs(&mut self, keep: &[bool]);
}

impl Program for ImageProgram {
    fn dtypes(&self) -> Vec<DataType> {
        self.outputs().map(|output| output.dtype).collect()
    }

    fn keep_outputs(&mut self, keep: &[bool]) {
        ImageProgram::keep_outputs(self, keep);
    }
}

impl Program for AudioProgram {
    fn dtypes(&self) -> Vec<DataType> {
        self.outputs().map(|output| output.dtype).collect()
    }

    fn keep_outputs(&mut self, keep: &[bool]) {
        AudioProgram::keep_outputs(self, keep);
    }
}

struct Inputs<'d> {
    declaration: &'d Declaration,
    ios: &'d [ComponentIo],
    components: &'d [ComponentSpec],
}

impl Inputs<'_> {
    /// A program and the input of each of its outputs, those left out that are optional and that no
    /// graph takes.
    fn of<P: Program>(&self, declared: &ProgramDeclaration<P>) -> Result<(P, Vec<MediaInput>), PackageError> {
        let mut program = declared.program.clone();
        let mut inputs: Vec<MediaInput> = Vec::new();
        let mut keep = Vec::new();
        for (port, dtype) in declared.ports.iter().zip(program.dtypes()) {
            let absent = port.optional && !self.has(&port.address.value);
            keep.push(!absent);
            if absent {
                continue;
            }
            let input = self.one(&port.address, dtype)?;
            let same = |other: &&MediaInput| (other.component, other.input) == (input.component, input.input);
            if inputs.iter().any(|other| same(&other)) {
                let Address {
                    component,
                    port: name,
                } = &port.address.value;
                let message = format!("an output before is for {component}.{name} too; an input takes one");
                return Err(said_invalid(&port.address.at, message));
            }
            inputs.push(input);
        }
        program.keep_outputs(&keep);
        Ok((program, inputs))
    }

    fn has(&self, address: &Address) -> bool {
        let component = self.declaration.by_name.get(&address.component);
        let io = component.and_then(|&component| self.ios.get(component));
        io.is_some_and(|io| io.input(&address.port).is_some())
    }

    /// The input that a result is for: one that the host would set otherwise.
    fn one(&self, port: &Said<Address>, dtype: DataType) -> Result<MediaInput, PackageError> {
        let name = &port.value.component;
        let component = self.declaration.index_of(name, port)?;
        let inputs = self.ios.get(component).map_or(&[][..], |io| io.inputs.as_slice());
        let input = port_index(name, inputs, "input", &port.value.port, &port.at)?;
        let declared = inputs.get(input);
        if let Some(declared) = declared
            && declared.dtype() != Some(dtype)
        {
            return Err(mismatch(name, declared, &port.at, format!("an input of {dtype}")));
        }
        let source = self
            .components
            .get(component)
            .and_then(|component| component.inputs.get(input))
            .map(|input| input.source);
        let settable = matches!(
            source,
            Some(
                InputSource::Request { .. }
                    | InputSource::Loop { .. }
                    | InputSource::Positions {
                        coordinates: Some(_),
                        ..
                    }
            )
        );
        if !settable {
            return Err(said_invalid(
                &port.at,
                format!(
                    "input \"{}\" of component \"{name}\" is fed by the pipeline already",
                    port.value.port
                ),
            ));
        }
        Ok(MediaInput {
            component,
            input,
            layout: PortLayout::new(declared.and_then(|port| port.dims.as_deref())),
        })
    }
}

/// That the tokens are those of what the program makes.
fn check_vision(vision: &Said<ImagePlaceholders>, program: &ImageProgram) -> Result<(), PackageError> {
    let wrong = |message: &str| Err(said_invalid(&vision.at, message.to_owned()));
    match vision.value.count {
        TokenCount::PerPatch(_) | TokenCount::FromGrid if !program.makes_patches() => {
            return wrong("tokens are counted by patches, and preprocessing.image makes none (patchify)");
        }
        _ => {}
    }
    match program.thumbnail() == vision.value.thumbnail {
        true => Ok(()),
        false => wrong("thumbnail_order is not that of the tiles of preprocessing.image"),
    }
}
