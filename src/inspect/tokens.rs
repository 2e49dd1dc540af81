//! The tokens of a call on screen: lines, a cursor on one token, search.

use std::ops::Range;

use ratatui::text::Span;

use super::cursor::Cursor;
use super::source::TokensDocument;
use crate::explain::Part;
use crate::explain::words::short;
use crate::report::visible;

/// How likely a generated token was, in steps that are told apart without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heat {
    /// Letter of the step: the higher, the less likely.
    pub letter: char,
    /// The step, from zero; 5 where no log-probability was captured.
    pub step: usize,
}

/// Steps with the least probability of each, and how the legend calls them.
pub const HEAT: [(char, f64, &str); 5] = [
    ('▁', 0.9, "≥.9"),
    ('▂', 0.5, "≥.5"),
    ('▄', 0.1, "≥.1"),
    ('▆', 0.01, "≥.01"),
    ('█', 0.0, "less"),
];

/// What stands where no log-probability was captured.
pub const UNCAPTURED: char = '?';

/// The step of a log-probability.
pub fn heat(logprob: f32) -> Heat {
    let probability = f64::from(logprob).exp();
    let step = HEAT.iter().position(|(_, least, _)| probability >= *least);
    match step {
        Some(step) => Heat { letter: HEAT[step].0, step },
        None => Heat { letter: UNCAPTURED, step: HEAT.len() },
    }
}

/// One line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Where a stretch begins: what it is.
    Head(usize),
    /// Tokens of a stretch.
    Tokens {
        /// The stretch.
        stretch: usize,
        /// Positions from the root.
        tokens: Range<usize>,
    },
    /// Log-probabilities of the tokens above.
    Heat {
        /// Positions from the root.
        tokens: Range<usize>,
    },
}

/// The screen of tokens.
#[derive(Clone, Debug)]
pub struct TokensScreen {
    /// What is shown.
    pub document: TokensDocument,
    /// Position of the chosen token.
    pub at: usize,
    /// The line with the chosen token.
    pub cursor: Cursor,
    /// The first line of what is told of the token.
    pub details: usize,
    names: Vec<String>,
    lines: Vec<Line>,
    width: usize,
}

impl TokensScreen {
    /// Shows a document; the first generated token of its call is chosen.
    pub fn new(document: TokensDocument) -> Self {
        let own = document.stretches.last().filter(|stretch| stretch.part == Part::Generation);
        let at = own.map_or(0, |stretch| stretch.start);
        let names = {
            let name = short(document.stretches.iter().map(|stretch| &stretch.call_id));
            document.stretches.iter().map(|stretch| name(&stretch.call_id)).collect()
        };
        let (cursor, lines) = (Cursor::default(), Vec::new());
        Self { document, at, cursor, details: 0, names, lines, width: 0 }
    }

    /// The call of a stretch, cut short to what tells it from the others of the chain.
    pub fn name(&self, stretch: usize) -> &str {
        self.names.get(stretch).map_or("", String::as_str)
    }

    /// Lays the tokens out on `width` columns; what is laid out already stays.
    pub fn lay_out(&mut self, width: usize) -> &[Line] {
        if self.width == width {
            return &self.lines;
        }
        self.width = width;
        self.lines.clear();
        for (number, stretch) in self.document.stretches.iter().enumerate() {
            self.lines.push(Line::Head(number));
            let (mut start, mut used) = (stretch.start, 0);
            for token in stretch.start..stretch.end {
                let wide = self.cell(token).width();
                if used + wide > width && used > 0 {
                    push(&mut self.lines, number, stretch.part, start..token);
                    (start, used) = (token, 0);
                }
                used += wide;
                // A line of text is a line of the screen.
                if self.document.text(token).is_some_and(|text| text.contains('\n')) {
                    push(&mut self.lines, number, stretch.part, start..token + 1);
                    (start, used) = (token + 1, 0);
                }
            }
            if start < stretch.end {
                push(&mut self.lines, number, stretch.part, start..stretch.end);
            }
        }
        self.cursor.at = self.line_of(self.at);
        &self.lines
    }

    /// The lines, once they are laid out.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// A token as it is shown: text that cannot mislead, or its id; never wider than a line.
    pub fn cell(&self, token: usize) -> Span<'static> {
        let shown = match self.document.text(token) {
            Some(text) => visible(text).into_owned(),
            None => format!("{} ", self.document.ids.get(token).copied().unwrap_or_default()),
        };
        cut(&shown, self.width.max(1)).into()
    }

    /// The line that holds a token.
    fn line_of(&self, token: usize) -> usize {
        let before = |line: &Line| match line {
            Line::Head(stretch) => {
                self.document.stretches.get(*stretch).is_some_and(|s| s.start <= token)
            }
            Line::Tokens { tokens, .. } | Line::Heat { tokens } => tokens.end <= token,
        };
        self.lines.partition_point(before)
    }

    /// Chooses a token.
    pub fn go_to(&mut self, token: usize) {
        self.at = token.min(self.document.ids.len().saturating_sub(1));
        self.details = 0;
        self.cursor.at = self.line_of(self.at);
    }

    /// So many tokens on; back where negative.
    pub fn step(&mut self, tokens: isize) {
        self.go_to(self.at.saturating_add_signed(tokens));
    }

    /// So many lines of tokens down; up where negative. The column stays as far as it can.
    pub fn move_lines(&mut self, lines: isize) {
        let column = self.column();
        let mut line = self.line_of(self.at);
        for _ in 0..lines.unsigned_abs() {
            let on = if lines > 0 { self.below(line) } else { self.above(line) };
            let Some(on) = on else { break };
            line = on;
        }
        if let Some(Line::Tokens { tokens, .. }) = self.lines.get(line) {
            let (mut at, mut used) = (tokens.start, 0);
            while at + 1 < tokens.end {
                used += self.cell(at).width();
                if used > column {
                    break;
                }
                at += 1;
            }
            self.go_to(at);
        }
    }

    /// So many screens down; up where negative.
    pub fn turn(&mut self, pages: isize) {
        let lines = self.cursor.shown().len().saturating_sub(1).max(1);
        // Lines of tokens are fewer than those of the screen.
        self.move_lines(pages.signum() * isize::try_from(lines.div_ceil(2)).unwrap_or(1));
    }

    fn column(&self) -> usize {
        match self.lines.get(self.line_of(self.at)) {
            Some(Line::Tokens { tokens, .. }) => {
                (tokens.start..self.at).map(|token| self.cell(token).width()).sum()
            }
            _ => 0,
        }
    }

    fn below(&self, line: usize) -> Option<usize> {
        let tokens = |line: &usize| matches!(self.lines[*line], Line::Tokens { .. });
        (line + 1..self.lines.len()).find(tokens)
    }

    fn above(&self, line: usize) -> Option<usize> {
        let tokens = |line: &usize| matches!(self.lines[*line], Line::Tokens { .. });
        (0..line.min(self.lines.len())).rev().find(tokens)
    }

    /// To the first token of the stretch after, or before, the chosen one that `wanted` holds for;
    /// false if there is none.
    pub fn next_stretch(
        &mut self,
        forward: bool,
        wanted: impl Fn(&super::source::StretchDocument) -> bool,
    ) -> bool {
        let (here, stretches) = (self.document.stretch_of(self.at), &self.document.stretches);
        let after = here.saturating_add(1).min(stretches.len());
        let found = match forward {
            true => stretches[after..].iter().find(|stretch| wanted(stretch)),
            false => stretches[..here.min(after)].iter().rev().find(|stretch| wanted(stretch)),
        };
        let found = found.map(|stretch| stretch.start);
        found.into_iter().for_each(|start| self.go_to(start));
        found.is_some()
    }

    /// The next token whose id `query` is, or where text begins that holds it, whatever its case;
    /// from the chosen one on and round the end.
    pub fn find(&self, query: &str, forward: bool) -> Option<usize> {
        let mut hits = self.document.hits(query);
        let beyond = match forward {
            true => hits.iter().position(|&hit| hit > self.at),
            false => hits.iter().rposition(|&hit| hit < self.at),
        };
        match (beyond, forward) {
            (Some(hit), _) => Some(hits.swap_remove(hit)),
            (None, true) => hits.first().copied(),
            (None, false) => hits.last().copied(),
        }
    }
}

fn push(lines: &mut Vec<Line>, stretch: usize, part: Part, tokens: Range<usize>) {
    lines.push(Line::Tokens { stretch, tokens: tokens.clone() });
    if part == Part::Generation {
        lines.push(Line::Heat { tokens });
    }
}

/// `text` on at most `width` columns, with a mark where it was cut.
pub fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for letter in text.chars() {
        let wide = Span::raw(letter.to_string()).width();
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        kept.push(letter);
    }
    if width > 0 { kept + "…" } else { kept }
}

#[cfg(test)]
mod tests {
    use super::{cut, heat};

    #[test]
    fn steps_of_probability() {
        let step = |probability: f64| heat(probability.ln() as f32).step;
        assert_eq!([1.0, 0.91, 0.6, 0.2, 0.05, 1e-9].map(step), [0, 0, 1, 2, 3, 4]);
        assert_eq!(heat(f32::NEG_INFINITY).step, 4);
        assert_eq!(heat(-9999.0).step, 4);
        // The wire can hold a log-probability above zero; it is no less likely for that.
        assert_eq!(heat(0.5).step, 0);
        assert_eq!(heat(f32::NAN).letter, '?');
    }

    #[test]
    fn text_is_cut_at_columns() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("漢字漢", 5), "漢字…");
        assert_eq!(cut("漢字", 2), "…");
        assert_eq!(cut("ab", 0), "");
    }
}
