//! The report: one page that needs nothing but itself.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::batch::BatchFacts;
use super::measures::measures;
use super::sections;
use super::style::STYLE;
use super::svg::patterns;
use crate::explain::{Summary, Verdict};
use crate::report::{thousands, visible};
use crate::rows::Counts;

/// What a page tells.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Path of the archive, as commands name it.
    pub archive: String,
    /// BLAKE3 of its manifest.
    pub digest: String,
    /// The selection policy.
    pub policy: String,
    /// The archive in numbers.
    pub summary: &'a Summary,
    /// Counts over its rows.
    pub counts: Counts,
    /// How rows are spread over ranks.
    pub batch: BatchFacts,
    /// Guards of forest training that the configuration breaks; none without a configuration.
    pub guards: Option<Vec<Guard>>,
    /// Errors and warnings among what validation and selection found.
    pub findings: (u64, u64),
    /// Pooled errors of log-probabilities above this mask a rollout.
    pub threshold: Option<f64>,
}

/// A guard that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Where the key is written, as `FILE:LINE`; none where it is missing.
    pub place: Option<String>,
    /// The rule that it breaks.
    pub rule: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// Layout of the page; colours are those of the pictures.
const PAGE: &str = "
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', sans-serif }
main, header, footer { max-width: 1080px; margin: 0 auto; padding: 0 16px }
h1 { font-size: 1.5rem; margin: 24px 0 4px; overflow-wrap: anywhere }
h2 { font-size: 1.2rem; margin: 40px 0 8px } h3 { font-size: 1rem; margin: 20px 0 4px }
p, li, figcaption { max-width: 72ch; overflow-wrap: anywhere } figcaption, .note { color: var(--note) }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; list-style: none }
a { color: inherit; text-underline-offset: 3px }
code { font: 0.9em ui-monospace, monospace; overflow-wrap: anywhere } code.flag { white-space: nowrap }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 8px; margin: 12px 0 }
.tiles div, .stages li, .card { background: var(--panel); border: 1px solid var(--frame); border-radius: 8px }
.tiles div { padding: 8px 12px } .tiles dt { color: var(--note); font-size: .85rem }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums }
.tiles small { display: block; font-size: .8rem; font-weight: 400; color: var(--note); line-height: 1.35 }
.stages { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 8px 22px;
  padding: 0; list-style: none }
.stages li { position: relative; padding: 8px 12px; max-width: none; font-size: .9rem }
.stages li + li::before { content: '\\2192'; position: absolute; left: -19px; top: 8px; color: var(--note) }
.stages b { display: block; font-size: 1.1rem }
figure { margin: 12px 0 } .scroll { overflow-x: auto }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--loss) }
.wide svg { display: block; width: 100%; min-width: 640px; max-width: 900px; height: auto }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 12px }
.card { padding: 10px 12px; min-width: 0 } .card h3 { margin: 0 0 4px }
.card svg { display: block; width: 100%; height: auto } .card p { font-size: .9rem; margin: 4px 0 }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--frame); vertical-align: top }
th { font-weight: 600 } td.n, th.n { text-align: right } td code { white-space: nowrap }
td.t { min-width: 16ch; max-width: 44ch } details { margin: 6px 0 } summary { cursor: pointer; color: var(--note) }
footer { margin-top: 48px; padding-bottom: 32px; color: var(--note); font-size: .9rem }
.zero { position: absolute; width: 0; height: 0 }
@media (max-width: 500px) { .stack, .stack tbody, .stack tr, .stack td { display: block; width: 100% }
  .stack thead { display: none } .stack tr { padding: 6px 0; border-bottom: 1px solid var(--frame) }
  .stack td, .stack td.n { border: 0; padding: 1px 0; text-align: left; white-space: normal; max-width: none }
  .stack td:not(:empty)::before { content: attr(data-name) ': '; color: var(--note) }
  .stack td code { white-space: normal } .stages { grid-template-columns: 1fr; gap: 18px }
  .stages li + li::before { content: '\\2193'; left: 50%; top: -20px } }
@media print { @page { margin: 14mm } body { font-size: 10.5pt } nav { display: none }
  .wide svg { min-width: 0; max-width: 100% } .scroll { overflow: visible }
  figure, .card, tr, .tiles, .stages { break-inside: avoid } h2, h3 { break-after: avoid }
  .cards { grid-template-columns: 1fr 1fr } }
";

/// Nothing may be fetched and nothing may run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page as HTML.
pub fn page(report: &Report<'_>) -> String {
    let measures = measures(report.summary);
    let archive = visible(&report.archive);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (archive) " - forestctl report" }
                style { (PreEscaped(STYLE)) (PreEscaped(PAGE)) }
            }
            body {
                svg.zero aria-hidden="true" { (patterns()) }
                header {
                    h1 { (archive) }
                    p.note {
                        "Selected by " code { (visible(&report.policy)) } ". Archive "
                        code { (visible(&report.digest)) } ", "
                        "forestctl " (env!("CARGO_PKG_VERSION")) "."
                    }
                    nav aria-label="Sections" { ul {
                        @for (id, name) in SECTIONS { li { a href={ "#" (id) } { (name) } } }
                    } }
                }
                main {
                    (headline(report))
                    (sections::data_flow(report))
                    (sections::calls_to_rows(report))
                    (sections::compactions(report, &measures))
                    (sections::batch_size(report))
                    (sections::reasons(report))
                    (sections::distributions(report, &measures))
                    (sections::groups(report))
                }
                footer {
                    p {
                        "Made by " code { "forestctl report" } ". The same archive and settings give "
                        "the same page. " code.flag { "--format json" }
                        " prints its numbers."
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

const SECTIONS: [(&str, &str); 7] = [
    ("flow", "Data flow"),
    ("rows", "Calls to rows"),
    ("compaction", "Compaction and guards"),
    ("batch", "Batch size"),
    ("reasons", "Reasons"),
    ("distributions", "Distributions"),
    ("groups", "Prompt groups"),
];

fn headline(report: &Report<'_>) -> Markup {
    let Report { summary, counts, .. } = report;
    let of = |verdict| thousands(summary.rollouts_of(verdict));
    let (errors, warnings) = report.findings;
    let ratio = counts.row_tokens as f64 / counts.unique_tokens.max(1) as f64;
    let tiles = [
        ("prompt groups", counts.groups, format!("{} dropped", thousands(counts.dropped_groups))),
        (
            "rollouts",
            summary.rollouts(),
            format!(
                "{} valid, {} masked, {} dropped",
                of(Verdict::Valid),
                of(Verdict::Masked),
                of(Verdict::Dropped)
            ),
        ),
        (
            "calls",
            summary.recorded_calls(),
            format!("{} selected", thousands(summary.selected_calls)),
        ),
        (
            "tokens",
            summary.tokens.captured,
            format!("{} generated", thousands(summary.tokens.generated)),
        ),
        ("loss tokens", counts.loss_tokens, "each carries loss once".to_owned()),
        (
            "rows",
            counts.rows - counts.padding_rows,
            format!(
                "{} masked, {ratio:.2} x the tokens of their calls",
                thousands(counts.masked_rows)
            ),
        ),
        ("errors", errors, format!("and {} warnings", thousands(warnings))),
    ];
    html! {
        dl.tiles {
            @for (name, count, more) in &tiles {
                div { dt { (name) } dd { (thousands(*count)) small { (more) } } }
            }
        }
    }
}
