//! `--deny`, `--warn` and `--allow`: flags of which the last one decides.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::finding::Code;
use crate::report::{Level, Levels, Subject};

/// The three flags, in the order in which they were given.
#[derive(Debug, Default)]
pub struct LevelArgs {
    /// What they come to.
    pub levels: Levels,
}

const FLAGS: [(&str, Level, &str); 3] = [
    ("deny", Level::Deny, "Make findings of these codes errors; `warnings` names all warnings"),
    ("warn", Level::Warn, "Make findings of these codes warnings"),
    ("allow", Level::Allow, "Leave findings of these codes out; how many they were is still said"),
];

const ORDER: &str = "Several codes are parted by commas. --deny, --warn and --allow may be given \
                     often and mixed; the last one that names a finding decides";

impl Args for LevelArgs {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, (name, _, help)| {
            let flag = Arg::new(*name)
                .long(*name)
                .value_name("CODE")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .value_parser(SubjectParser)
                .hide_possible_values(true)
                .help(*help)
                .long_help(format!("{help}\n\n{ORDER}"));
            command.arg(flag)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LevelArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (name, level, _) in FLAGS {
            let places = matches.indices_of(name).into_iter().flatten();
            let subjects = matches.get_many::<Subject>(name).into_iter().flatten();
            given.extend(places.zip(subjects).map(|(place, subject)| (place, (level, *subject))));
        }
        given.sort_by_key(|(place, _)| *place);
        Ok(Self { levels: Levels(given.into_iter().map(|(_, flag)| flag).collect()) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses a code or `warnings`. Completions offer every code; an error names the nearest only.
#[derive(Clone, Copy, Debug)]
struct SubjectParser;

impl TypedValueParser for SubjectParser {
    type Value = Subject;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Subject, clap::Error> {
        let parse = |word: &str| word.parse::<Subject>();
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let codes = Code::ALL.iter().map(|code| code.as_str());
        Some(Box::new(codes.chain([Subject::WARNINGS]).map(PossibleValue::new)))
    }
}
