//! The YAML of a NeMo-RL run, as far as forests concern it: `token_capture`, `policy`, `grpo`,
//! `loss_fn`, and `async_rl`.

mod guards;
mod reader;
mod sections;

use std::collections::BTreeMap;
use std::path::Path;

pub use guards::guards;
pub use sections::{GrpoKeys, PolicyKeys, RolloutFailureKeys, TokenCaptureKeys};

use self::reader::Reader;
use super::document::{Node, Place};
use super::loss::LossConfig;
use crate::error::{Error, Result};

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    /// `token_capture`.
    pub token_capture: TokenCaptureKeys,
    /// `policy`.
    pub policy: PolicyKeys,
    /// `grpo`.
    pub grpo: GrpoKeys,
    /// `loss_fn`, with defaults for what it leaves out.
    pub loss: LossConfig,
    /// `async_rl.rollout_failure`.
    pub rollout_failure: RolloutFailureKeys,
    /// Keys that were read, and where each is written.
    pub stated: BTreeMap<String, Place>,
    /// Sections and keys that were passed over.
    pub ignored: Vec<String>,
}

/// A key that keeps a file from being used.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The key, as a path.
    pub key: String,
    /// Where it is written; `None` when it is missing.
    pub place: Option<Place>,
    /// The rule of forest training that it breaks, if it is one.
    pub rule: Option<u32>,
    /// What is wrong, beginning with the key.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl Refusal {
    /// The refusal as an error of its own.
    pub fn into_error(self) -> Error {
        let message = match self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message,
        };
        Error::usage(message).help(self.help)
    }
}

impl Recipe {
    /// Reads a YAML file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read; the first key that is not known, of another type, or that no
    /// forest can have.
    pub fn read(path: &Path) -> Result<Self> {
        let (recipe, refused) = Self::of(&Node::read(path)?);
        match refused.into_iter().next() {
            None => Ok(recipe),
            Some(refusal) => Err(refusal.into_error()),
        }
    }

    /// Reads a document, and says everything that is wrong with it by itself. Whether it is fit
    /// for forest training is for [`guards`] to say.
    pub fn of(document: &Node) -> (Self, Vec<Refusal>) {
        let mut reader = Reader::new(document);
        let mut recipe = Recipe::default();
        for (name, section) in document.keys() {
            let read = match name.as_str() {
                "token_capture" | "policy" | "grpo" | "loss_fn" | "async_rl" => {
                    reader.is_section(name, section)
                }
                "data" => {
                    reader.refuse_loss_multipliers("data", section);
                    false
                }
                _ => false,
            };
            if !read {
                recipe.ignored.push(name.clone());
            }
        }
        recipe.token_capture = sections::token_capture(&mut reader);
        recipe.policy = sections::policy(&mut reader);
        recipe.grpo = sections::grpo(&mut reader);
        recipe.loss = sections::loss(&mut reader);
        recipe.rollout_failure = sections::rollout_failure(&mut reader);
        let Reader { stated, ignored, refused, .. } = reader;
        recipe.stated = stated;
        recipe.ignored.extend(ignored);
        (recipe, refused)
    }

    /// Whether the file states a key, by its path.
    pub fn states(&self, key: &str) -> bool {
        self.stated.contains_key(key)
    }
}

#[cfg(test)]
mod tests;
