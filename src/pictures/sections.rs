//! Sections of the report.

use maud::{Markup, html};

use super::batch::batch;
use super::compaction::compaction;
use super::flow::flow;
use super::forest::{forest, several};
use super::histogram::{histogram, range};
use super::measures::Measure;
use super::page::{Guard, Report};
use super::svg::{Picture, cut, number};
use crate::explain::{Endings, GroupLine, Mark, Portrait, TreeCall, Verdict};
use crate::report::{thousands, visible};

/// Lines of a table at most; `ls` and `select` list everything.
const MOST_CALLS: usize = 300;
const MOST_GROUPS: usize = 10;

fn wide(picture: &Picture, caption: Markup) -> Markup {
    html! {
        figure.wide {
            div.scroll tabindex="0" role="group" aria-label=(visible(&picture.title)) {
                (picture.inline())
            }
            figcaption { (caption) }
        }
    }
}

/// A table; columns of numbers end at the right. It scrolls by itself where it is too wide.
fn table(caption: &str, header: &[(&str, bool)], rows: &[Vec<Markup>]) -> Markup {
    tabulated("", caption, header, rows)
}

/// A table whose cells stand below one another on a phone: for sentences.
fn stacked(caption: &str, header: &[(&str, bool)], rows: &[Vec<Markup>]) -> Markup {
    tabulated("stack", caption, header, rows)
}

fn tabulated(
    class_of_table: &str,
    caption: &str,
    header: &[(&str, bool)],
    rows: &[Vec<Markup>],
) -> Markup {
    let class = |numeric: bool| if numeric { "n" } else { "" };
    html! {
        div.scroll tabindex="0" role="group" aria-label=(caption) {
            table class=(class_of_table) {
                thead { tr { @for (name, numeric) in header {
                    th scope="col" class=(class(*numeric)) { (name) }
                } } }
                tbody { @for row in rows { tr {
                    @for (cell, (name, numeric)) in row.iter().zip(header) {
                        td class=(class(*numeric)) data-name=(name) { (cell) }
                    }
                } } }
            }
        }
    }
}

fn behind(summary: &str, inside: Markup) -> Markup {
    html! { details { summary { (summary) } (inside) } }
}

fn plain(text: impl AsRef<str>) -> Markup {
    html! { (visible(text.as_ref())) }
}

fn code(text: impl AsRef<str>) -> Markup {
    html! { code { (visible(text.as_ref())) } }
}

/// Captured, selected, laid out, filled up: what every stage has.
pub fn data_flow(report: &Report<'_>) -> Markup {
    let Report { summary, counts, .. } = report;
    let marks = [Mark::Accepted, Mark::Rejected, Mark::Failed, Mark::Pending, Mark::Uncommitted];
    let marked = marks
        .iter()
        .filter(|mark| summary.calls_of(**mark) > 0)
        .map(|mark| format!("{} {}", thousands(summary.calls_of(*mark)), mark.as_str()));
    let unrecorded = (summary.unrecorded_calls > 0)
        .then(|| format!("{} of them without a record", thousands(summary.unrecorded_calls)));
    let marked: Vec<String> = marked.chain(unrecorded).collect();
    let ranks = report.batch.settings.data_parallel.get();
    let stages = [
        ("Captured", format!("{} calls", thousands(summary.recorded_calls())), marked.join(", ")),
        (
            "Selected",
            format!("{} calls", thousands(summary.selected_calls)),
            format!(
                "{} of {} rollouts are valid",
                thousands(summary.rollouts_of(Verdict::Valid)),
                thousands(summary.rollouts())
            ),
        ),
        (
            "Rows",
            format!("{} rows", thousands(counts.rows - counts.padding_rows)),
            format!(
                "{} train, {} carry no loss",
                thousands(counts.rows - counts.padding_rows - counts.masked_rows),
                thousands(counts.masked_rows)
            ),
        ),
        (
            "Batch",
            format!("{} rows", thousands(counts.rows)),
            format!(
                "{} of execution padding, over {ranks} {}",
                thousands(counts.padding_rows),
                if ranks == 1 { "rank" } else { "ranks" }
            ),
        ),
    ];
    let tokens = &summary.tokens;
    let lines = [
        ("captured", tokens.captured),
        ("of these: generated, with loss", tokens.loss),
        ("context of rows that train", tokens.context),
        ("in no row, of rollouts that train", tokens.unselected),
        ("masked rollouts", tokens.masked),
        ("dropped groups", tokens.dropped),
        ("rows: repeated context", tokens.repeated),
        ("rows without loss", tokens.masked_rows),
        ("execution padding", tokens.padding),
        ("all physical rows", tokens.physical()),
    ];
    let rows: Vec<Vec<Markup>> =
        lines.iter().map(|(name, n)| vec![plain(name), plain(thousands(*n))]).collect();
    html! {
        section #flow {
            h2 { "Data flow" }
            ol.stages {
                @for (stage, count, more) in &stages { li { (stage) b { (count) } (more) } }
            }
            (wide(&flow(tokens), html! {
                "Heights are tokens. What the harness accepted and validation proved becomes rows; "
                "a shared ancestor is context in every row below it, and so repeats."
            }))
            (behind("Numbers", table("Tokens by stage", &[("tokens", false), ("count", true)], &rows)))
        }
    }
}

/// One rollout, whole.
pub fn calls_to_rows(report: &Report<'_>) -> Markup {
    let Some(picked) = &report.summary.picked else { return html! {} };
    let portrait = &picked.portrait;
    let id = portrait.fate.line.rollout_id.as_str();
    let show = format!("forestctl show {} {id}", report.archive);
    html! {
        section #rows {
            h2 { "Calls to rows" }
            (wide(&forest(portrait), html! {
                "Numbers count calls in the order of capture. Widths follow tokens, and short stretches "
                "are drawn wider than they are. Below, every path from a root to an endpoint is a row; "
                "each accepted generation carries loss in one of them. The same in words: "
                code { (visible(&show)) } "."
            }))
            (behind("Calls", calls(portrait)))
        }
    }
}

fn calls(portrait: &Portrait) -> Markup {
    let header = [
        ("call", false),
        ("id", false),
        ("continues", false),
        ("mark", false),
        ("at", true),
        ("carry", true),
        ("generated", true),
        ("owned in", false),
        ("context in", false),
    ];
    let row = |call: &TreeCall| {
        let number = portrait.captured.iter().position(|id| *id == call.call_id);
        vec![
            plain(number.map_or("-".to_owned(), |at| (at + 1).to_string())),
            code(cut(call.call_id.as_str(), 12)),
            code(call.parent_call_id.as_ref().map_or(String::new(), |id| cut(id.as_str(), 12))),
            plain(format!("{} {}", call.mark.letter(), call.mark.as_str())),
            plain(thousands(call.start)),
            plain(thousands(call.carry)),
            plain(thousands(call.generated)),
            code(call.owned_in.clone().unwrap_or_default()),
            code(several(&call.context_in)),
        ]
    };
    let all = &portrait.tree.calls;
    let rows: Vec<Vec<Markup>> = all.iter().take(MOST_CALLS).map(row).collect();
    html! {
        (table("Calls of the rollout", &header, &rows))
        @if all.len() > MOST_CALLS { p.note { (all.len() - MOST_CALLS) " more calls." } }
    }
}

/// Where contexts were cut, and what the configuration says.
pub fn compactions(report: &Report<'_>, measures: &[Measure]) -> Markup {
    let summary = report.summary;
    let leaves: Vec<Vec<Markup>> = summary
        .leaves
        .iter()
        .map(|(kind, n)| vec![code(kind.as_str()), plain(thousands(*n)), plain(kind.meaning())])
        .collect();
    let roots: u64 = summary.leaves.values().sum();
    let compactions = summary.compactions.len() as u64;
    html! {
        section #compaction {
            h2 { "Compaction and guards" }
            p {
                (thousands(roots)) " roots come after the first one of their rollout; "
                (thousands(compactions)) " of them are compactions. A harness that guards its context by a "
                "budget of tokens cuts just below it: the greatest context before a compaction shows "
                "where that is."
            }
            @if let Some(picked) = &summary.picked {
                (wide(&compaction(&picked.portrait), html! {
                    "A dashed line is a new root: from there on, the context is what the harness sent "
                    "instead of the conversation so far."
                }))
            }
            @if compactions > 0 {
                div.cards {
                    @for measure in measures.iter().filter(|m| m.name.ends_with("_compaction")) {
                        (card(measure, html! {}))
                    }
                }
            }
            @if !leaves.is_empty() {
                h3 { "How later roots leave what went before" }
                (stacked("Kinds of roots", &[("kind", false), ("roots", true), ("meaning", false)], &leaves))
            }
            h3 { "How calls ended" }
            (endings(&summary.endings))
            h3 { "Guards of forest training" }
            (guards(report))
        }
    }
}

/// What the guards of harness and capture came to, in the capture's words.
fn endings(endings: &Endings) -> Markup {
    let row = |word: &str, (selected, others): (u64, u64)| {
        vec![plain(word), plain(thousands(selected)), plain(thousands(others))]
    };
    let words = endings.by_word.iter().map(|(word, counts)| row(word, *counts));
    let others = (endings.others != (0, 0)).then(|| row("other words", endings.others));
    let rows: Vec<Vec<Markup>> = words.chain(others).collect();
    let header = [("ending", false), ("selected", true), ("not selected", true)];
    stacked("How calls ended", &header, &rows)
}

fn guards(report: &Report<'_>) -> Markup {
    let Some(guards) = &report.guards else {
        return html! {
            p {
                "No configuration was given. With " code.flag { "--config grpo.yaml" }
                ", what keeps the run from forest training stands here."
            }
        };
    };
    let row = |guard: &Guard| {
        vec![
            plain(guard.rule.map_or("-".to_owned(), |rule| rule.to_string())),
            plain(&guard.message),
            code(guard.place.clone().unwrap_or_default()),
            plain(&guard.help),
        ]
    };
    let rows: Vec<Vec<Markup>> = guards.iter().map(row).collect();
    let header = [("rule", true), ("what is wrong", false), ("at", false), ("what to do", false)];
    html! {
        @match rows.len() {
            0 => p { "All guards hold: the configuration is fit for forest training." },
            1 => p { "1 guard does not hold." },
            n => p { (n) " guards do not hold." },
        }
        @if !rows.is_empty() { (stacked("Guards that do not hold", &header, &rows)) }
    }
}

/// Logical rollouts against physical rows.
pub fn batch_size(report: &Report<'_>) -> Markup {
    html! {
        section #batch {
            h2 { "Batch size" }
            p {
                "A batch counts logical rollouts: each has one reward and one advantage, however many "
                "rows it becomes. Rows are filled up group by group until ranks and microbatches divide "
                "them; what is filled in has no reward and no loss."
                @if report.batch.settings.data_parallel.get() == 1 && report.batch.row_multiple == 1 {
                    " One rank and microbatches of one row need no padding; "
                    code.flag { "--data-parallel" } ", " code.flag { "--train-micro-batch" } " and "
                    code.flag { "--config" } " set others."
                }
            }
            (wide(&batch(&report.summary.groups, &report.batch), html! {
                "r is the slot of a rollout in its prompt group, s one of its rows."
            }))
        }
    }
}

/// Why rollouts carry no loss.
pub fn reasons(report: &Report<'_>) -> Markup {
    let header = [
        ("code", false),
        ("rollouts", true),
        ("first", true),
        ("what it means, and what to do", false),
        ("for example", false),
    ];
    let mut reasons: Vec<_> = report.summary.reasons.iter().collect();
    reasons.sort_by_key(|(code, because)| (std::cmp::Reverse(because.rollouts), **code));
    let rows: Vec<Vec<Markup>> = reasons
        .into_iter()
        .map(|(found, because)| {
            let rule = found.rule().map(|rule| format!(" Rule {rule}.")).unwrap_or_default();
            let ids = because.examples.iter().map(|id| code(cut(id.as_str(), 40)));
            vec![
                code(found.as_str()),
                plain(thousands(because.rollouts)),
                plain(thousands(because.first)),
                html! { (found.summary()) (rule) " " span.note { (found.help()) } },
                html! { @for id in ids { (id) " " } },
            ]
        })
        .collect();
    html! {
        section #reasons {
            h2 { "Reasons" }
            @if rows.is_empty() {
                p { "Every rollout trains." }
            } @else {
                p {
                    "Why rollouts carry no loss. " code { "forestctl why " (visible(&report.archive)) " ROLLOUT" }
                    " tells all of one."
                }
                (stacked("Reasons", &header, &rows))
            }
        }
    }
}

/// A measure as a card.
fn card(measure: &Measure, more: Markup) -> Markup {
    let distribution = &measure.distribution;
    let header = [(measure.unit, false), ("train", true), ("do not", true)];
    let row =
        |bin| vec![plain(range(bin)), plain(thousands(bin.trains)), plain(thousands(bin.others))];
    let rows: Vec<Vec<Markup>> = distribution.bins.iter().map(row).collect();
    let quantiles = distribution.spread.map(|s| {
        let names = ["least", "5%", "25%", "median", "75%", "95%", "greatest", "mean"];
        let values = [s.min, s.p05, s.p25, s.median, s.p75, s.p95, s.max, s.mean];
        let row = |(name, value): (&str, f64)| vec![plain(name), plain(number(value))];
        names.into_iter().zip(values).map(row).collect::<Vec<_>>()
    });
    html! {
        div.card {
            h3 { (measure.title) }
            (histogram(measure.title, measure.unit, distribution).inline())
            (more)
            @if let Some(quantiles) = &quantiles {
                (behind("Numbers", html! {
                    (table(measure.title, &[("share below", false), ("value", true)], quantiles))
                    (table(measure.title, &header, &rows))
                }))
            }
        }
    }
}

/// How numbers spread over rollouts and groups.
pub fn distributions(report: &Report<'_>, measures: &[Measure]) -> Markup {
    let more = |measure: &Measure| match measure.name {
        "mismatch" if measure.distribution.spread.is_none() => html! {
            p {
                "Needs log-probabilities to compare with: build rows, score them by "
                code { "forestctl step" } " with " code.flag { "--dump-logprobs" } ", and give the file as "
                code.flag { "--prev-logprobs" } ". " code.flag { "forestctl audit-logprobs" }
                " compares single calls."
            }
        },
        "mismatch" => html! {
            @match report.threshold {
                Some(threshold) => p { "Rollouts above " (number(threshold)) " are masked." },
                None => p { "1 is no difference. No threshold is set." },
            }
        },
        _ => html! {},
    };
    html! {
        section #distributions {
            h2 { "Distributions" }
            p {
                "Solid bars train, hatched ones do not. Below the bars: the middle half, and a line over the "
                "middle nine tenths. A few values have a bar each; bins of a long tail grow by 1, 2, 5, 10."
            }
            div.cards {
                @for measure in measures.iter().filter(|m| !m.name.ends_with("_compaction")) {
                    (card(measure, more(measure)))
                }
            }
        }
    }
}

/// The prompt groups with the most tokens.
pub fn groups(report: &Report<'_>) -> Markup {
    let header = [
        ("group", false),
        ("rollouts", true),
        ("train", true),
        ("rows", true),
        ("padding", true),
        ("mean reward", true),
        ("tokens", true),
        ("loss tokens", true),
        ("R / U", true),
        ("dropped for", false),
    ];
    let all = &report.summary.groups;
    let mut most: Vec<&GroupLine> = all.iter().collect();
    most.sort_by(|a, b| b.tokens.cmp(&a.tokens).then_with(|| a.group_id.cmp(&b.group_id)));
    let row = |group: &&GroupLine| {
        let train = group.slots.iter().filter(|slot| slot.trains).count();
        vec![
            code(cut(group.group_id.as_str(), 40)),
            plain(thousands(group.slots.len() as u64)),
            plain(thousands(train as u64)),
            plain(thousands(group.rows() - group.padding)),
            plain(thousands(group.padding)),
            plain(group.reward.map_or("-".to_owned(), number)),
            plain(thousands(group.tokens)),
            plain(thousands(group.loss_tokens)),
            plain(group.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))),
            code(group.dropped.map_or("", |code| code.as_str())),
        ]
    };
    let rows: Vec<Vec<Markup>> = most.iter().take(MOST_GROUPS).map(row).collect();
    html! {
        section #groups {
            h2 { "Prompt groups" }
            p {
                @if all.len() > MOST_GROUPS {
                    "The " (MOST_GROUPS) " of " (thousands(all.len() as u64)) " with the most captured tokens. "
                }
                "R / U is how often rows repeat their tokens, as " code { "forestctl du --by group" } " has it."
            }
            (table("Prompt groups", &header, &rows))
        }
    }
}
