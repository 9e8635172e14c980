//! Finds `libplanq.so`: in the folder that `PLANQ_DIR` names, or else where Python's planq has it.

use std::path::PathBuf;
use std::process::Command;

fn folder_of_planq() -> PathBuf {
    if let Some(folder) = std::env::var_os("PLANQ_DIR") {
        return folder.into();
    }
    let told = Command::new("python")
        .args(["-m", "planq", "--library"])
        .output()
        .expect("PLANQ_DIR is not set, and python does not start");
    assert!(
        told.status.success(),
        "PLANQ_DIR is not set, and python has no planq"
    );
    let library = PathBuf::from(String::from_utf8(told.stdout).expect("a path").trim());
    library.parent().expect("a file in a folder").to_path_buf()
}

fn main() {
    let folder = folder_of_planq();
    println!("cargo:rerun-if-env-changed=PLANQ_DIR");
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}
