//! Styles. Whatever colour tells is told without it too: by a word, a letter, an underline.

use ratatui::style::{Color, Modifier, Style};

use crate::explain::{Mark, Verdict};

/// Colours of the terminal's own palette, so that they fit a dark and a light one; or none.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Whether there are colours.
    pub color: bool,
}

impl Theme {
    fn paint(self, color: Color, style: Style) -> Style {
        if self.color { style.fg(color) } else { style }
    }

    /// Ids and headings.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is beside the point.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Fine.
    pub fn good(self) -> Style {
        self.paint(Color::Green, Style::new())
    }

    /// Masked, unknown.
    pub fn warn(self) -> Style {
        self.paint(Color::Magenta, Style::new())
    }

    /// Wrong.
    pub fn bad(self) -> Style {
        self.paint(Color::Red, self.strong())
    }

    /// The line, or token, that is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The first and the last line of a screen.
    pub fn bar(self) -> Style {
        self.chosen()
    }

    /// Tokens that carry loss.
    pub fn loss(self) -> Style {
        self.paint(Color::Green, Style::new().add_modifier(Modifier::UNDERLINED))
    }

    /// A verdict.
    pub fn verdict(self, verdict: Verdict) -> Style {
        match verdict {
            Verdict::Valid => self.good(),
            Verdict::Masked => self.warn(),
            Verdict::Dropped => self.bad(),
        }
    }

    /// A mark, as `show` paints it.
    pub fn mark(self, mark: Mark) -> Style {
        match mark {
            Mark::Accepted => self.good(),
            Mark::Rejected => self.dim(),
            Mark::Failed => self.bad(),
            Mark::Pending | Mark::Uncommitted => self.warn(),
        }
    }

    /// A step of the scale of log-probabilities, from likely to unlikely, then uncaptured.
    pub fn heat(self, step: usize) -> Style {
        // Blue is too dark for many a dark terminal: the middle has the colour of text.
        let colors = [Color::Green, Color::Cyan, Color::Reset, Color::Magenta, Color::Red];
        colors.get(step).map_or(self.dim(), |color| self.paint(*color, Style::new()))
    }
}
