//! Images and sound against the libraries that made their conventions. The Python scripts here
//! made the values, and say with which versions.

mod audio;
mod bombs;
mod ends;
mod images;
mod peak;
mod tiles;
