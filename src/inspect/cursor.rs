//! The chosen line of a list, and the stretch of it that is on screen.

use std::ops::Range;

/// A cursor that stays on screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the chosen line.
    pub at: usize,
    top: usize,
    /// Lines on screen when it was drawn last.
    page: usize,
}

impl Cursor {
    /// A cursor on a line.
    pub fn on(at: usize) -> Self {
        Self { at, ..Self::default() }
    }

    /// Down by so many of `count` lines; up where negative.
    pub fn step(&mut self, lines: isize, count: usize) {
        self.at = self.at.saturating_add_signed(lines).min(count.saturating_sub(1));
    }

    /// The same by screens.
    pub fn turn(&mut self, pages: isize, count: usize) {
        let page = isize::try_from(self.page.saturating_sub(1).max(1)).unwrap_or(isize::MAX);
        self.step(pages.saturating_mul(page), count);
    }

    /// The lines of `count` that are shown on `height`; the chosen one among them.
    pub fn window(&mut self, count: usize, height: usize) -> Range<usize> {
        self.window_around(count, height, 0)
    }

    /// The same, with so many lines before and after the chosen one where there are any.
    pub fn window_around(&mut self, count: usize, height: usize, margin: usize) -> Range<usize> {
        let margin = margin.min(height.saturating_sub(1) / 2);
        self.page = height;
        self.at = self.at.min(count.saturating_sub(1));
        let end = self.at.saturating_add(margin + 1).min(count);
        self.top = self.top.min(self.at.saturating_sub(margin)).max(end.saturating_sub(height));
        self.top = self.top.min(count.saturating_sub(height));
        self.top..count.min(self.top.saturating_add(height))
    }

    /// The lines that were shown last.
    pub fn shown(&self) -> Range<usize> {
        self.top..self.top.saturating_add(self.page.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn the_chosen_line_stays_on_screen() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.window(100, 10), 0..10);
        cursor.step(12, 100);
        assert_eq!((cursor.at, cursor.window(100, 10)), (12, 3..13));
        cursor.step(-1, 100);
        assert_eq!(cursor.window(100, 10), 3..13);
        cursor.turn(1, 100);
        assert_eq!((cursor.at, cursor.window(100, 10)), (20, 11..21));
        cursor.step(isize::MAX, 100);
        assert_eq!((cursor.at, cursor.window(100, 10)), (99, 90..100));
        cursor.turn(-2, 100);
        assert_eq!((cursor.at, cursor.window(100, 10)), (81, 81..91));
        // A list that grew shorter, a screen that grew, and one without lines.
        assert_eq!((cursor.window(5, 10), cursor.at), (0..5, 4));
        assert_eq!(cursor.window(0, 10), 0..0);
        assert_eq!(cursor.window(0, 0), 0..0);
    }
}
