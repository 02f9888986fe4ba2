//! Where the caches of components lie, as their sessions can have them.

use crate::component::ComponentSession;
use crate::package::{
    Buffer, ComponentSpec, InputDim, InputSource, InputSpec, OutputRef, OutputRole, OutputSpec, PipelineSpec,
};
use crate::runtime::OpenedComponent;

use super::{PipelineError, RequestError};

/// Notes which caches a component makes longer where they lie: those of which its session says
/// so, unless a component reads the output too. Buffers of no fixed size need be none if all of
/// a component's are such: they are as any other cache. Other buffers are overwritten, or two take
/// turns.
pub(super) fn grow_all_in_place(
    spec: &mut PipelineSpec,
    opened: &[OpenedComponent],
) -> Result<(), PipelineError> {
    let mut opened = opened.iter().enumerate();
    opened.try_for_each(|(component, opened)| grow_in_place(spec, component, opened.session.as_ref()))
}

/// The same for one of the components.
pub(super) fn grow_in_place(
    spec: &mut PipelineSpec,
    component: usize,
    session: &dyn ComponentSession,
) -> Result<(), PipelineError> {
    let inputs = spec.components.iter().flat_map(|component| &component.inputs);
    let routed: Vec<OutputRef> = inputs
        .filter_map(|input| match input.source {
            InputSource::Edge(from) => Some(from),
            _ => None,
        })
        .collect();
    let Some(values) = spec.components.get_mut(component) else {
        return Ok(());
    };
    let mut growing = Vec::new();
    for known in session.in_place_caches() {
        let output = known.present;
        let source = values.inputs.get(known.past).map(|input| input.source);
        let is_read = routed.contains(&OutputRef { component, output });
        if let Some(OutputRole::Present { axis, buffer, .. }) =
            values.outputs.get(output).map(|output| &output.role)
            && source == Some(InputSource::Past { output })
            && *axis == known.axis
            && !is_read
            && buffer.is_none_or(|buffer| buffer.capacity.is_none())
        {
            growing.push((known.past, output));
        }
    }
    // The graph may have one name for the dims of all of them.
    let is_left = |(output, spec): (usize, &OutputSpec)| {
        matches!(spec.role, OutputRole::Present { buffer: Some(_), .. })
            && !growing.iter().any(|(_, grown)| *grown == output)
    };
    let keeps_buffers = values.outputs.iter().enumerate().any(is_left);
    for (past, output) in growing {
        if let Some(OutputSpec {
            role: OutputRole::Present { in_place, buffer, .. },
            ..
        }) = values.outputs.get_mut(output)
            && (buffer.is_none() || !keeps_buffers)
        {
            *in_place = Some(past);
            *buffer = None;
        }
    }
    share_buffers(component, values, session, &routed);
    for (output, (values, port)) in values.outputs.iter_mut().zip(&values.io.outputs).enumerate() {
        let OutputRole::Present {
            in_place: Some(past),
            buffer: Some(buffer),
            ..
        } = &mut values.role
        else {
            continue;
        };
        if routed.contains(&OutputRef { component, output }) {
            return Err(RequestError::InvalidSetting {
                what: "kv_update",
                message: format!("the buffer \"{}\" is read by another component too", port.name),
            }
            .into());
        }
        buffer.shared = session.overwrites(*past, output);
    }
    Ok(())
}

/// Makes caches that a component would make anew in each step buffers, if its session takes all of
/// them as such and nothing else has to do with how long they are.
fn share_buffers(
    component: usize,
    values: &mut ComponentSpec,
    session: &dyn ComponentSession,
    routed: &[OutputRef],
) {
    let mut shared = Vec::new();
    for (output, spec) in values.outputs.iter().enumerate() {
        let OutputRole::Present { in_place, .. } = &spec.role else {
            continue;
        };
        let mut inputs = values.inputs.iter();
        let past = inputs.position(|input| input.source == InputSource::Past { output });
        match past {
            Some(past)
                if in_place.is_none()
                    && session.takes_buffer(past, output)
                    && !routed.contains(&OutputRef { component, output }) =>
            {
                shared.push((past, output));
            }
            _ => return,
        }
    }
    let takes_size = |input: &InputSpec| {
        let absent = input.absent.iter().flat_map(|absent| &absent.dims);
        let is_past = |input: usize| shared.iter().any(|(past, _)| *past == input);
        input
            .dims
            .iter()
            .chain(absent)
            .any(|dim| matches!(dim, InputDim::SameAs { input, .. } if is_past(*input)))
    };
    if values.inputs.iter().any(takes_size) {
        return;
    }
    for (past, output) in shared {
        if let Some(OutputSpec {
            role: OutputRole::Present { in_place, buffer, .. },
            ..
        }) = values.outputs.get_mut(output)
        {
            *in_place = Some(past);
            *buffer = Some(Buffer {
                capacity: None,
                shared: true,
            });
        }
    }
}
