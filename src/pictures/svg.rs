//! What SVG pictures are made of.

use maud::{Markup, PreEscaped, Render, html};

use super::style::STYLE;
use crate::report::{thousands, visible};

/// A picture: its size in pixels, its name, what it shows in words, and its shapes.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Pixels from left to right.
    pub width: f64,
    /// Pixels from top to bottom.
    pub height: f64,
    /// Its name.
    pub title: String,
    /// What it shows, for readers who do not see it.
    pub words: String,
    /// Its shapes.
    pub body: Markup,
}

impl Picture {
    /// As part of a page that has the style and the patterns of pictures.
    pub fn inline(&self) -> Markup {
        self.element(html! {})
    }

    /// As a file of its own.
    pub fn standalone(&self) -> String {
        let inside = html! {
            style { (PreEscaped(STYLE)) }
            (patterns())
            rect.paper width=(px(self.width)) height=(px(self.height)) rx="8" {}
        };
        format!("{}\n", self.element(inside).into_string())
    }

    fn element(&self, before: Markup) -> Markup {
        let (width, height) = (px(self.width), px(self.height));
        let label = visible(&self.title);
        html! {
            svg.picture xmlns="http://www.w3.org/2000/svg" role="img" aria-label=(label)
                viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
                desc { (visible(&self.words)) }
                (before)
                (self.body)
            }
        }
    }
}

/// Hatches: what stands where a fill would mean loss.
pub fn patterns() -> Markup {
    html! {
        defs {
            pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse"
                patternTransform="rotate(45)" {
                rect width="6" height="6" style="fill: var(--paper)" {}
                line y2="6" stroke-width="2" style="stroke: var(--hatch)" {}
            }
        }
    }
}

/// A length with one decimal at most, so that bytes do not depend on the last bits of a float.
pub fn px(length: f64) -> String {
    let mut text = format!("{:.1}", if length.is_finite() { length } else { 0.0 });
    if text.ends_with(".0") {
        text.truncate(text.len() - 2);
    }
    if text == "-0" { "0".to_owned() } else { text }
}

/// A box with what a pointer over it tells.
pub fn block(x: f64, y: f64, width: f64, height: f64, class: &str, tells: &str) -> Markup {
    html! {
        rect class=(class) x=(px(x)) y=(px(y)) width=(px(width.max(0.0))) height=(px(height.max(0.0)))
            rx="2" { @if !tells.is_empty() { title { (visible(tells)) } } }
    }
}

/// Text that begins at `x`.
pub fn text(x: f64, y: f64, class: &str, text: impl Render) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) { (text) } }
}

/// Text that ends at `x`.
pub fn text_to(x: f64, y: f64, class: &str, text: impl Render) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor="end" { (text) } }
}

/// Text around `x`.
pub fn text_at(x: f64, y: f64, class: &str, text: impl Render) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor="middle" { (text) } }
}

/// A straight line.
pub fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> Markup {
    html! { line class=(class) x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) {} }
}

/// Swatches with their words, in lines that fit into `width`; the shapes, and their height.
pub fn legend(x: f64, y: f64, width: f64, entries: &[(&str, &str)]) -> (Markup, f64) {
    let (mut at, mut down) = (x, 0.0);
    let mut places = Vec::new();
    for (class, words) in entries {
        let wide = 22.0 + 6.2 * words.chars().count() as f64 + 14.0;
        if at > x && at + wide > x + width {
            (at, down) = (x, down + 20.0);
        }
        places.push((at, y + down, class, words));
        at += wide;
    }
    let shapes = html! {
        @for (x, y, class, words) in &places {
            (block(*x, *y, 16.0, 12.0, class, ""))
            (text(x + 22.0, y + 10.5, "note", *words))
        }
    };
    (shapes, down + 20.0)
}

/// Pixels that small text takes, about.
pub fn wide(text: &str) -> f64 {
    6.8 * text.chars().count() as f64
}

/// An id that is no wider than so many letters; the end is cut off.
pub fn cut(id: &str, letters: usize) -> String {
    let shown = visible(id);
    match shown.char_indices().nth(letters) {
        None => shown.into_owned(),
        Some((end, _)) => format!("{}…", &shown[..end]),
    }
}

/// A number for people: grouped, with two decimals where it is not whole.
pub fn number(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e15 {
        let digits = thousands(x.abs() as u64);
        return if x < 0.0 { format!("-{digits}") } else { digits };
    }
    if x.abs() >= 1000.0 && x.abs() < 1e15 {
        return number(x.round());
    }
    let decimals = if x.abs() < 0.1 { 4 } else { 2 };
    let text = format!("{x:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number that fits beside an axis.
pub fn short(x: f64) -> String {
    match x.abs() {
        1e15.. => format!("{x:.0e}"),
        1e9.. => format!("{}G", number(x / 1e9)),
        1e6.. => format!("{}M", number(x / 1e6)),
        1e4.. => format!("{}k", number(x / 1e3)),
        _ => number(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_have_one_form() {
        assert_eq!([px(1.0), px(0.04), px(-0.04), px(f64::NAN)], ["1", "0", "0", "0"]);
        let shown = [0.0, -1.0, 1234567.0, 0.25, 1.0 / 3.0, 0.00123, 12345.6];
        let wanted = ["0", "-1", "1,234,567", "0.25", "0.33", "0.0012", "12,346"];
        assert_eq!(shown.map(number), wanted);
    }

    #[test]
    fn a_cut_falls_between_letters() {
        assert_eq!(cut("éé\u{1b}é", 3), "éé\\…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
