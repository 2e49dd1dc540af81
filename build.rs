//! How the programs are linked. `forestctl-step`, and it alone, is told where its libtorch lies;
//! `forestctl` links none.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    // At a fixed place in memory: else the loader moves forty thousand addresses at every start,
    // which takes a quarter of the time of a small `validate`.
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if (target("OS"), target("ENV")) == ("linux".to_owned(), "gnu".to_owned()) {
        println!("cargo:rustc-link-arg-bin=forestctl=-no-pie");
    }
    if std::env::var_os("CARGO_FEATURE_TORCH").is_none() {
        return;
    }
    // Without LIBTORCH (a type check against tch/doc-only), there is nothing to find.
    let Some(libtorch) = std::env::var_os("LIBTORCH") else { return };
    let libraries = Path::new(&libtorch).join("lib");
    let rpath = format!("-Wl,-rpath,{}", libraries.display());
    // From target/release, the same folder by a way that survives moving the whole tree.
    let relative = "-Wl,-rpath,$ORIGIN/../../.deps/libtorch/lib";
    for path in [relative, &rpath] {
        println!("cargo:rustc-link-arg-bin=forestctl-step={path}");
    }
    println!("cargo:rustc-link-arg-tests={rpath}");
    println!("cargo:rustc-link-arg-benches={rpath}");
    shim(Path::new(&libtorch));
}

/// Compiles the part of the learner that is C++, for the programs that run it and no other.
#[cfg(feature = "torch")]
fn shim(libtorch: &Path) {
    let sources =
        ["shim.cpp", "attention.cpp", "merge.cpp"].map(|name| format!("src/learner/{name}"));
    for file in
        sources.iter().map(String::as_str).chain(["src/learner/shim.h", "src/learner/merge.h"])
    {
        println!("cargo:rerun-if-changed={file}");
    }
    let include = libtorch.join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(&sources)
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .warnings(false)
        .cargo_metadata(false)
        .compile("forest_shim");
    let archive =
        Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("libforest_shim.a");
    for to in ["bin=forestctl-step", "tests", "benches"] {
        for argument in
            [archive.display().to_string(), "-ltorch_cpu".to_owned(), "-lc10".to_owned()]
        {
            println!("cargo:rustc-link-arg-{to}={argument}");
        }
        println!("cargo:rustc-link-arg-{to}=-lstdc++");
    }
}

#[cfg(not(feature = "torch"))]
fn shim(_: &Path) {}
