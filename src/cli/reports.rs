//! `--report`: findings for other tools, beside what the console shows.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;

use super::ui::{Format, Ui};
use crate::error::{Error, Result};
use crate::output;
use crate::report::{self, Outcome};

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Junit,
    Sarif,
    Github,
}

/// A report that was asked for: `junit=FILE`, `sarif=FILE`, `github` or `github=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    form: Form,
    /// `None` is stdout.
    file: Option<PathBuf>,
}

impl FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, file) = match text.split_once('=') {
            Some((word, file)) => (word, Some(file)),
            None => (text, None),
        };
        let form = match word {
            "junit" => Form::Junit,
            "sarif" => Form::Sarif,
            "github" => Form::Github,
            _ => return Err("expected junit=FILE, sarif=FILE, github, or github=FILE".to_owned()),
        };
        let file = match file {
            None if form == Form::Github => None,
            None | Some("") => {
                return Err(format!("{word} needs a file: {word}=FILE, - is stdout"));
            }
            Some("-") => None,
            Some(file) => Some(file.into()),
        };
        Ok(Self { form, file })
    }
}

/// All reports of one invocation.
#[derive(Debug)]
pub struct Reports(Vec<Report>);

impl Reports {
    /// Takes reports that can all be written.
    ///
    /// # Errors
    ///
    /// Two for one place, stdout that `format` needs itself, and files that cannot be.
    pub fn new(reports: Vec<Report>, format: Format) -> Result<Self> {
        for (at, report) in reports.iter().enumerate() {
            let twice = reports[..at].iter().any(|other| other.file == report.file);
            match &report.file {
                None if twice => return Err(Error::usage("two reports cannot share stdout")),
                None if format != Format::Human => {
                    let word = format.to_possible_value().map(|word| word.get_name().to_owned());
                    let word = word.unwrap_or_default();
                    return Err(Error::usage(format!("--format {word} needs stdout for itself"))
                        .help(
                            "Give the report a file, /dev/stderr for one: --report github=FILE",
                        ));
                }
                None => {}
                Some(file) if twice => {
                    let file = file.display();
                    return Err(Error::usage(format!("two reports cannot share {file}")));
                }
                Some(file) => check(file)?,
            }
        }
        Ok(Self(reports))
    }

    /// Whether none was asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them goes to stdout.
    pub fn take_stdout(&self) -> bool {
        self.0.iter().any(|report| report.file.is_none())
    }

    /// Writes them all. Files are replaced, whole or not at all: a job that runs again reports
    /// again.
    pub fn write(&self, outcome: &Outcome, ui: &Ui) -> Result<()> {
        for Report { form, file } in &self.0 {
            let text = match form {
                Form::Junit => report::junit(outcome)?,
                Form::Sarif => report::sarif(outcome)?,
                Form::Github => report::github(outcome),
            };
            match file {
                None => ui.print(text)?,
                Some(file) => write(file, text.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// A file that cannot be is refused before the work, not after.
fn check(file: &Path) -> Result<()> {
    let refused = |what: &str| Err(Error::usage(format!("{} {what}", file.display())));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if file.is_dir() {
        return refused("is a folder, and a report is a file");
    }
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return refused("is in a folder that is not there");
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |e| Error::io("cannot write", file, e);
    match file.metadata() {
        // Pipes and devices are written to, not replaced; /dev/stderr can lead to a file.
        Ok(found) if !found.is_file() || file.starts_with("/dev") => {
            use std::io::Write;
            let stream = std::fs::OpenOptions::new().append(true).open(file);
            stream.and_then(|mut stream| stream.write_all(bytes)).map_err(failed)
        }
        // What a link leads to is replaced, not the link.
        Ok(_) => output::write_file(&file.canonicalize().map_err(failed)?, true, bytes),
        Err(_) => output::write_file(file, true, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_from_their_words() {
        let report = |form, file: Option<&str>| Ok(Report { form, file: file.map(PathBuf::from) });
        assert_eq!("junit=a=b.xml".parse(), report(Form::Junit, Some("a=b.xml")));
        assert_eq!("sarif=-".parse(), report(Form::Sarif, None));
        assert_eq!("github".parse(), report(Form::Github, None));
        assert_eq!("github=log".parse(), report(Form::Github, Some("log")));
        for wrong in ["junit", "sarif=", "github=", "html=x", ""] {
            assert!(wrong.parse::<Report>().is_err(), "{wrong}");
        }
    }
}
