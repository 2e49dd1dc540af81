//! `forestctl-step`: the learner. `forestctl step` finds and runs it.

#[path = "../learner/mod.rs"]
mod learner;

fn main() {
    let _ = learner::run;
}
