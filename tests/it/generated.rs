//! Files made from the code are checked in and fresh.

use std::path::Path;

#[test]
fn generated_files_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = forestctl::cli::generated::files();
    assert!(files.len() > 8, "man pages, completions, and codes");
    let stale: Vec<_> = files
        .iter()
        .filter(|(name, text)| {
            std::fs::read_to_string(root.join(name)).ok().as_deref() != Some(text.as_str())
        })
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(stale.is_empty(), "run `make generated`; stale: {stale:?}");
}

#[test]
fn no_generated_file_is_left_over() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = forestctl::cli::generated::files();
    for folder in ["man", "completions", "schemas"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let name = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
            assert!(files.iter().any(|(known, _)| *known == name), "{name} is made by nothing");
        }
    }
}

#[test]
fn every_command_has_examples_and_exit_codes() {
    for command in forestctl::cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains("Examples:\n"), "{}", command.get_name());
        assert!(help.contains("Exit status:\n"), "{}", command.get_name());
        let about = command.get_about().map(|a| a.to_string()).unwrap_or_default();
        assert!(!about.is_empty() && !about.ends_with('.'), "{}: {about:?}", command.get_name());
    }
}

#[test]
fn the_command_tree_is_sound() {
    forestctl::cli::command().debug_assert();
}
