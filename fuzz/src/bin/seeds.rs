//! Writes the inputs that fuzzing begins with: `seeds FOLDER TARGET...` makes FOLDER/TARGET/seed-N.

use std::path::Path;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: seeds FOLDER TARGET...");
        std::process::exit(2);
    };
    for target in arguments {
        let folder = Path::new(&folder).join(&target);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        for (index, seed) in oxpipe_fuzz::seeds::of(&target).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{index:02}")), seed).expect("a file can be written");
        }
    }
}
