//! Packages and the step loop over sessions written here, so that every value that crosses
//! the seam can be looked at and every failure can be made.

mod answers;
mod beams;
mod diffusion;
mod fake;
mod genai;
mod heads;
mod hugging_face;
mod images;
mod iterative;
mod limits;
mod masked_diffusion;
mod nested;
mod package_errors;
mod phases;
mod processors;
mod sampling;
mod schedulers;
mod sounds;
mod speculation;
mod split_decoders;
mod step_loop;
mod tiny;
mod transactions;
mod written;
