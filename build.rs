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
}
