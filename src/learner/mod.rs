//! The tensor side of `step`: [`run`] is where to start reading.
//!
//! These files belong to the program `forestctl-step` (and to its tests), not to the library: code
//! that calls libtorch would make every program that links the library need it. What they compute
//! is decided in [`forestctl::step`].

pub mod attention;
pub mod audit;
pub mod checkpoint;
pub mod clock;
pub mod decoder;
pub mod events;
pub mod optim;
pub mod parameters;
pub mod run;
pub mod shim;
pub mod tensor;
pub mod update;

pub use run::{Models, Observer, measure, run};
