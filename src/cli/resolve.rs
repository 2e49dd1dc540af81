//! Settings from flags, a configuration file, and defaults, in this order; and where each is from.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ui::Ui;
use crate::config::document::Place;
use crate::config::recipe::Recipe;
use crate::error::{Error, Result};
use crate::select::PolicyChoice;

/// The flag of a configuration file.
#[derive(Debug, Args)]
pub struct ConfigArg {
    /// NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read
    ///
    /// Flags come first. `forestctl config show FILE` prints where each value comes from.
    #[arg(long, value_name = "YAML")]
    pub config: Option<PathBuf>,
}

impl ConfigArg {
    /// Reads the file, if there is one.
    pub fn resolver(&self) -> Result<Resolver> {
        let recipe = self.config.as_deref().map(Recipe::read).transpose()?;
        Ok(Resolver::new(recipe.unwrap_or_default()))
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag, by its name.
    Flag(&'static str),
    /// A line of a file.
    File(Place),
    /// Neither.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => f.write_str(flag),
            Origin::File(place) => place.fmt(f),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A setting with its value as text, empty for none.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its key in a file; that of the flag where no file has one.
    pub key: &'static str,
    /// The value.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// The word of a value that people choose from a list.
pub struct Word<T>(pub T);

impl<T: ValueEnum> std::fmt::Display for Word<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.0.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Takes values and remembers them.
#[derive(Debug)]
pub struct Resolver {
    /// What the file says.
    pub recipe: Recipe,
    /// Values taken so far.
    pub settings: Vec<Setting>,
}

impl Resolver {
    /// Values of `recipe` and flags over it.
    pub fn new(recipe: Recipe) -> Self {
        Self { recipe, settings: Vec::new() }
    }

    /// The value of `key`: of the flag, else of the file, else none.
    pub fn optional<T: fmt::Display>(
        &mut self,
        key: &'static str,
        (name, flag): (&'static str, Option<T>),
        file: impl FnOnce(&Recipe) -> Option<T>,
    ) -> Option<T> {
        let (value, origin) = match (flag, file(&self.recipe)) {
            (Some(flag), _) => (Some(flag), Origin::Flag(name)),
            (None, value) => {
                let place = self.recipe.stated.get(key).cloned();
                (value, place.map_or(Origin::Default, Origin::File))
            }
        };
        let shown = value.as_ref().map(T::to_string).unwrap_or_default();
        self.settings.push(Setting { key, value: shown, origin });
        value
    }

    /// The value of `key`, with a default.
    pub fn value<T: fmt::Display>(
        &mut self,
        key: &'static str,
        flag: (&'static str, Option<T>),
        file: impl FnOnce(&Recipe) -> Option<T>,
        default: T,
    ) -> T {
        let found = self.optional(key, flag, file);
        if found.is_none()
            && let Some(last) = self.settings.last_mut()
        {
            last.value = default.to_string();
        }
        found.unwrap_or(default)
    }

    /// The selection policy: of the flag, else of the file, else the default.
    ///
    /// # Errors
    ///
    /// A policy of the file that is none.
    pub fn policy(&mut self, flag: Option<PolicyChoice>) -> Result<PolicyChoice> {
        const KEY: &str = "token_capture.selection_policy";
        let stated = match &self.recipe.token_capture.selection_policy {
            None => None,
            Some(text) => Some(text.parse::<PolicyChoice>().map_err(|why| {
                let place = self.recipe.stated.get(KEY);
                let place = place.map_or_else(String::new, |place| format!("{place}: "));
                Error::usage(format!("{place}{KEY}: {why}"))
            })?),
        };
        Ok(self.value(KEY, ("--policy", flag), |_| stated, PolicyChoice::default()))
    }

    /// Tells what of the file no setting is made of.
    pub fn tell_ignored(&self, command: &str, ui: &Ui) {
        let taken = |key: &&String| self.settings.iter().any(|setting| setting.key == **key);
        let unused = self.recipe.stated.keys().filter(|key| !taken(key));
        let ignored: Vec<&str> =
            self.recipe.ignored.iter().chain(unused).map(String::as_str).collect();
        if !ignored.is_empty() {
            ui.say(format!("{command} does not read from --config: {}", ignored.join(", ")));
        }
    }
}
