//! The entries of a store, line after line.

use std::sync::Arc;

use super::entry::TokenEntry;
use super::fields::RecordError;
use super::prompt::Prompt;
use super::runs;
use super::scan;
use crate::finding::Code;

/// Reads lines in order. Fast, and small in memory, where a prompt begins with the prompt of the
/// line before, as those of a growing conversation do: that text is compared, not read again, and
/// the tokens are kept once.
#[derive(Debug, Default)]
pub(super) struct EntryReader {
    /// Prompts of which none begins with the one before.
    runs: Vec<Arc<Vec<u64>>>,
    /// The last of them, which may still grow.
    tokens: Vec<u64>,
    /// The items that spell it.
    text: Vec<u8>,
}

/// An entry whose prompt may still be with its reader.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryDraft {
    entry: TokenEntry,
    /// Run and length.
    prompt: Option<(usize, usize)>,
}

impl EntryDraft {
    /// The entry without its prompt.
    pub fn entry(&self) -> &TokenEntry {
        &self.entry
    }

    /// The entry; `runs` are those of its reader.
    pub fn finish(mut self, runs: &[Arc<Vec<u64>>]) -> TokenEntry {
        if let Some((run, len)) = self.prompt
            && let Some(tokens) = runs.get(run)
        {
            self.entry.prompt_token_ids = Prompt::beginning(tokens, len);
        }
        self.entry
    }
}

impl EntryReader {
    /// Reads the next lines.
    pub fn read<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<Result<EntryDraft, RecordError>> {
        let before = std::mem::take(&mut self.text);
        let mut known = before.as_slice();
        let read = lines.map(|line| match self.fast(line, known) {
            Some((draft, items)) => {
                known = items;
                Ok(draft)
            }
            None => {
                let entry = text(line).and_then(TokenEntry::parse)?;
                Ok(EntryDraft { entry, prompt: None })
            }
        });
        let read = read.collect();
        self.text = known.to_vec();
        read
    }

    /// The prompts that drafts refer to.
    pub fn finish(mut self) -> Vec<Arc<Vec<u64>>> {
        self.runs.push(Arc::new(self.tokens));
        self.runs
    }

    /// An entry and the text of its prompt's items; `None` for a line that is not spelled as the
    /// usual writers do, or is wrong: in what words, the line as a whole decides. `known` is the
    /// text of the tokens so far.
    fn fast<'a>(&mut self, line: &'a [u8], known: &[u8]) -> Option<(EntryDraft, &'a [u8])> {
        let Split { before, prompt, after, continues } = split(line, known)?;
        let items = prompt.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let continues = continues && !known.is_empty();
        let rest = match items.get(known.len()..).filter(|_| continues) {
            Some([]) => Some(None),
            Some([b',', b' ', rest @ ..] | [b',', rest @ ..]) => Some(Some(rest)),
            _ => None,
        };
        let entry = TokenEntry::parse(text(&[before, b"[]", after].concat()).ok()?).ok()?;
        let length = self.tokens.len();
        let read = match rest {
            Some(None) => Some(()),
            // A comma wants a token after it.
            Some(Some(rest)) => {
                runs::items(rest, &mut self.tokens).filter(|()| self.tokens.len() > length)
            }
            None => {
                let mut tokens = Vec::with_capacity(items.len() / 4);
                runs::items(items, &mut tokens)?;
                let run = std::mem::replace(&mut self.tokens, tokens);
                self.runs.push(Arc::new(run));
                Some(())
            }
        };
        if read.is_none() {
            self.tokens.truncate(length);
            return None;
        }
        let prompt = Some((self.runs.len(), self.tokens.len()));
        Some((EntryDraft { entry, prompt }, items))
    }
}

fn text(line: &[u8]) -> Result<&str, RecordError> {
    std::str::from_utf8(line).map_err(|error| RecordError {
        code: Code::MalformedJson,
        field: None,
        message: format!("not UTF-8: {error}"),
    })
}

/// A line around its prompt.
struct Split<'a> {
    before: &'a [u8],
    prompt: &'a [u8],
    after: &'a [u8],
    /// The prompt's items begin with those that are known.
    continues: bool,
}

fn split<'a>(line: &'a [u8], known: &[u8]) -> Option<Split<'a>> {
    let mut prompts = scan::members_past(line, known)?.into_iter().filter(|member| {
        // A key with an escape may be any key.
        member.key == b"prompt_token_ids" || memchr::memchr(b'\\', member.key).is_some()
    });
    let member = prompts.next().filter(|_| prompts.next().is_none())?;
    (member.key == b"prompt_token_ids").then(|| {
        let start = member.value.as_ptr() as usize - line.as_ptr() as usize;
        let (before, rest) = line.split_at(start);
        let (prompt, after) = rest.split_at(member.value.len());
        Split { before, prompt, after, continues: member.passed }
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Spellings of one id, most of them plain.
    fn id() -> impl Strategy<Value = String> {
        prop_oneof![
            20 => (0u64..200_000).prop_map(|id| id.to_string()),
            1 => any::<u64>().prop_map(|id| id.to_string()),
            1 => prop_oneof![
                Just("-0"), Just("01"), Just("1.0"), Just("1e2"), Just("-1"), Just("null"),
                Just("\"7\""), Just("true"), Just(""), Just("]"), Just("[1]"), Just(" 5 "),
                Just("99999999999999999999999"),
            ].prop_map(str::to_owned),
        ]
    }

    fn line(prompt: &[String], separator: &str, twist: u8) -> String {
        let prompt = prompt.join(separator);
        let key = if twist == 1 { "prompt_token_id\\u0073" } else { "prompt_token_ids" };
        let again = if twist == 2 { ",\"prompt_token_ids\":[1]" } else { "" };
        let end = if twist == 3 { "" } else { "}" };
        let space = if twist == 4 { " " } else { "" };
        format!(
            "{{\"rollout_id\":\"r\",\"model_call_id\":\"c\",\"{key}\":{space}[{prompt}{space}],\
             \"generation_token_ids\":[1],\"generation_log_probs\":[-0.5]{again}{end}"
        )
    }

    #[test]
    fn a_comma_without_a_token_is_no_prompt() {
        for (first, second) in [("0,0", "0,0,"), ("0, 0", "0, 0, "), ("0,0", "0,0, "), ("", ",0")] {
            let prompt = |items: &str| line(&[items.to_owned()], ",", 0);
            let lines = [prompt(first), prompt(second)];
            let mut reader = EntryReader::default();
            let read = reader.read(lines.iter().map(String::as_bytes));
            assert!(read[0].is_ok() && read[1].is_err(), "{second:?}");
        }
    }

    proptest! {
        /// Prompts that grow, shrink, branch and repeat say what each line says by itself.
        #[test]
        fn lines_of_a_store_are_read_as_each_by_itself(
            ids in vec(id(), 1..12),
            cuts in vec((0usize..12, prop_oneof![4 => Just(0u8), 1 => 1u8..5], any::<bool>()), 1..8),
        ) {
            let lines: Vec<String> = cuts
                .iter()
                .map(|&(cut, twist, wide)| {
                    line(&ids[..cut.min(ids.len())], if wide { ", " } else { "," }, twist)
                })
                .collect();
            let alone: Vec<_> = lines.iter().map(|line| TokenEntry::parse(line)).collect();
            for block in [1, 2, lines.len()] {
                let mut reader = EntryReader::default();
                let read: Vec<_> = lines
                    .chunks(block)
                    .flat_map(|lines| reader.read(lines.iter().map(String::as_bytes)))
                    .collect();
                let runs = reader.finish();
                let read: Vec<_> =
                    read.into_iter().map(|draft| Ok(draft?.finish(&runs))).collect();
                prop_assert_eq!(&read, &alone);
            }
        }
    }
}
