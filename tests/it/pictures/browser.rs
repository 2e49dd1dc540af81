//! The page in a headless browser: nothing fetched, nothing cut off, light and dark, on paper.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive::Group;
use serde_json::Value;

use super::hostile;
use crate::builders;
use crate::closed_loop::ingested;
use crate::people::{Place, stored};

/// The browser of `scripts/browser.sh`; says so, past the capture of test output, where it is not
/// there.
fn browser() -> Option<PathBuf> {
    if let Some(own) = std::env::var_os("FORESTCTL_BROWSER") {
        return Some(own.into());
    }
    let deps = std::env::var_os("FORESTCTL_DEPS").unwrap_or_else(|| ".deps".into());
    let program = Path::new(&deps).join("browser/chromium");
    if program.exists() {
        return Some(std::fs::canonicalize(program).unwrap());
    }
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "skipped: no browser shows pages here; run scripts/browser.sh");
    None
}

/// What the page is asked: it answers in its own text. Boxes are in pixels of the window.
const PROBE: &str = "
const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] };
const scrolls = e => e.closest('.scroll');
const wide = [...document.querySelectorAll('body *')].filter(e => !scrolls(e) && !e.closest('svg')
  && e.getBoundingClientRect().right > innerWidth + 0.5);
const pictures = [...document.querySelectorAll('svg.picture')].map(svg => ({
  name: svg.getAttribute('aria-label'), words: svg.querySelector('desc').textContent, box: box(svg),
  texts: [...svg.querySelectorAll('text')].map(t => [t.textContent, ...box(t)]),
  blocks: [...svg.querySelectorAll('rect')].filter(r => r.querySelector('title')).map(box) }));
const style = getComputedStyle(document.body);
const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const links = [...document.querySelectorAll('a')].filter(a => !document.querySelector(a.hash));
document.body.textContent = 'PROBE' + JSON.stringify({ width: innerWidth,
  scroll: document.documentElement.scrollWidth, wide: wide.map(e => e.outerHTML.slice(0, 200)), pictures,
  paper: style.backgroundColor, ink: style.color, dead: links.map(a => a.hash),
  colors: Object.fromEntries(['paper', 'ink', 'note', 'panel', 'loss', 'on-loss', 'context', 'carry', 'bad']
    .map(name => [name, variable('--' + name)])),
  scripts: document.scripts.length, hacked: typeof hacked,
  fetched: performance.getEntriesByType('resource').map(e => e.name) }) + 'END';
";

struct Browser {
    program: PathBuf,
    place: Place,
}

impl Browser {
    /// With the report of an archive of `groups` as `report.html`; none without a browser.
    fn of(groups: Vec<Group>, flags: &[&str]) -> Option<Self> {
        let program = browser()?;
        let place = Place::of(groups);
        let report = ["report", "run.forest", "-o", "report.html"];
        let output = place.run(&[&report[..], flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { program, place })
    }

    fn run(&self, page: &str, flags: &[&str]) -> Output {
        let home = format!("--user-data-dir={}", self.place.path("profile").display());
        let page = format!("file://{}", self.place.path(page).display());
        let fixed = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            &home,
        ];
        let mut command = Command::new(&self.program);
        command.args(fixed).args(flags).arg(page).output().unwrap()
    }

    /// What the page answers in a window of `width`.
    fn ask(&self, width: u32, dark: bool) -> Value {
        // The copy differs in what is asked of it, and in that it may be asked.
        let page = std::fs::read_to_string(self.place.path("report.html")).unwrap();
        let allowed = page.replacen(
            "default-src 'none'; ",
            "default-src 'none'; script-src 'unsafe-inline'; ",
            1,
        );
        assert_ne!(allowed, page);
        let asked = allowed.replacen("</body>", &format!("<script>{PROBE}</script></body>"), 1);
        std::fs::write(self.place.path("asked.html"), asked).unwrap();
        let window = format!("--window-size={width},900");
        let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
        let output = self.run("asked.html", &[&window, &scheme, "--dump-dom"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!log.contains("CONSOLE"), "{log}");
        let answer = text.split("PROBE").nth(1).and_then(|rest| rest.split("END").next());
        let answer = answer.unwrap_or_else(|| panic!("no answer: {log}"));
        let answer = answer.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&answer).unwrap()
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Nothing is cut off, and no word covers another one.
fn laid_out(answer: &Value) {
    assert_eq!(answer["scroll"], answer["width"], "the page scrolls sideways");
    assert_eq!(answer["wide"], serde_json::json!([]));
    let pictures = answer["pictures"].as_array().unwrap();
    for picture in pictures {
        let name = &picture["name"];
        let frame = numbers(&picture["box"]);
        assert!(frame[2] - frame[0] > 200.0 && frame[3] - frame[1] > 80.0, "{name}: {frame:?}");
        assert!(!picture["words"].as_str().unwrap().is_empty(), "{name} has no words");
        let texts: Vec<(&str, Vec<f64>)> = picture["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| {
                let of = text.as_array().unwrap();
                (of[0].as_str().unwrap(), of[1..].iter().map(|x| x.as_f64().unwrap()).collect())
            })
            .collect();
        for (text, at) in &texts {
            let inside = at[0] >= frame[0] - 1.0 && at[2] <= frame[2] + 1.0;
            assert!(
                inside && at[3] <= frame[3] + 1.0,
                "{name}: {text:?} is cut off: {at:?} {frame:?}"
            );
        }
        // A word is inside a block, or beside it.
        let blocks: Vec<Vec<f64>> =
            picture["blocks"].as_array().unwrap().iter().map(numbers).collect();
        for (text, a) in &texts {
            for b in &blocks {
                let across = a[2].min(b[2]) - a[0].max(b[0]);
                let down = a[3].min(b[3]) - a[1].max(b[1]);
                let inside = a[0] >= b[0] - 1.0 && a[2] <= b[2] + 1.0;
                assert!(inside || across < 1.5 || down < 4.0, "{name}: {text:?} runs into a block");
            }
        }
        for (at, (text, a)) in texts.iter().enumerate() {
            for (other, b) in &texts[at + 1..] {
                let across = a[2].min(b[2]) - a[0].max(b[0]);
                let down = a[3].min(b[3]) - a[1].max(b[1]);
                assert!(
                    across < 1.5 || down < 4.0,
                    "{name}: {text:?} covers {other:?}: {a:?} {b:?}"
                );
            }
        }
    }
}

#[test]
fn the_page_fits_a_phone_and_a_wide_window() {
    let flags = ["--data-parallel", "4", "--rollout", "p03_g0"];
    let mut groups = ingested("staged-v2").groups;
    groups[1].group_id = "WWWWWWWWWWWWWWWWWWWW".into();
    let Some(browser) = Browser::of(groups, &flags) else { return };
    for width in [390, 1200] {
        let answer = browser.ask(width, false);
        assert_eq!(answer["width"], width);
        laid_out(&answer);
        // Four figures, two of compactions, six distributions.
        assert_eq!(answer["pictures"].as_array().unwrap().len(), 12);
        assert_eq!(answer["fetched"], serde_json::json!([]));
        assert_eq!(answer["dead"], serde_json::json!([]));
        // The one that asks.
        assert_eq!(answer["scripts"], 1);
    }
}

#[test]
fn batches_of_any_size_are_laid_out() {
    let packed = ["--sequence-packing", "--pack-tokens", "600", "--data-parallel"];
    for flags in [&["--data-parallel", "40"][..], &[&packed[..], &["8"]].concat()] {
        let Some(browser) = Browser::of(ingested("staged-v2").groups, flags) else { return };
        laid_out(&browser.ask(1200, false));
    }
}

/// Relative luminance of `#rrggbb`.
fn luminance(color: &str) -> f64 {
    let channel = |at: usize| {
        let x = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if x <= 0.04045 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

#[test]
fn light_and_dark_differ_and_both_can_be_read() {
    let Some(browser) = Browser::of(ingested("staged-v2").groups, &[]) else { return };
    let answers = [false, true].map(|dark| browser.ask(390, dark));
    assert_eq!(answers[0]["paper"], "rgb(255, 255, 255)");
    assert_eq!(answers[1]["paper"], "rgb(13, 17, 23)");
    assert_ne!(answers[0]["ink"], answers[1]["ink"]);
    for answer in &answers {
        let color = |name: &str| luminance(answer["colors"][name].as_str().unwrap());
        let contrast = |a: &str, b: &str| {
            let (a, b) = (color(a), color(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for (text, ground) in [
            ("ink", "paper"),
            ("note", "paper"),
            ("ink", "panel"),
            ("note", "panel"),
            ("on-loss", "loss"),
            ("ink", "context"),
            ("bad", "paper"),
        ] {
            let found = contrast(text, ground);
            assert!(found >= 4.5, "{text} on {ground}: {found}");
        }
        assert!(contrast("loss", "carry") >= 1.5, "{}", contrast("loss", "carry"));
        assert!(contrast("loss", "context") >= 1.5, "{}", contrast("loss", "context"));
    }
}

#[test]
fn the_page_prints() {
    let Some(browser) = Browser::of(ingested("staged-v2").groups, &[]) else { return };
    let paper = browser.place.path("report.pdf");
    let flag = format!("--print-to-pdf={}", paper.display());
    browser.run("report.html", &[&flag, "--no-pdf-header-footer"]);
    let bytes = std::fs::read(&paper).unwrap();
    assert!(bytes.starts_with(b"%PDF-"));
    let text = String::from_utf8_lossy(&bytes);
    let pages = text.matches("/Type /Page\n").count();
    assert!((3..=12).contains(&pages), "{pages}");
    assert!(bytes.len() < 2_000_000, "{}", bytes.len());
}

#[test]
fn what_an_input_names_neither_runs_nor_breaks_the_page() {
    let Some(browser) = Browser::of(hostile(), &["--policy", "all_captured"]) else { return };
    for width in [390, 1200] {
        let answer = browser.ask(width, false);
        laid_out(&answer);
        assert_eq!((&answer["scripts"], &answer["hacked"]), (&1.into(), &"undefined".into()));
        assert_eq!(answer["fetched"], serde_json::json!([]));
        let names =
            answer["pictures"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap());
        assert!(names.into_iter().any(|name| name.contains("<script>alert(1)</script>")));
    }
}

/// Rollouts of every shape: a chain, a fork at every call, long contexts with short answers, many
/// roots; ids of any length.
#[test]
fn forests_of_any_shape_are_laid_out() {
    let Some(_) = browser() else { return };
    let chain = |length: usize, carry: usize| {
        let mut calls = vec![builders::call("c0", None, &vec![1; carry], &[(2, -0.5)])];
        for at in 1..length {
            let parent = &calls[at - 1];
            let next =
                builders::call(format!("c{at}"), Some(parent), &vec![3; carry], &[(4, -0.5)]);
            calls.push(next);
        }
        calls
    };
    let comb = {
        let mut calls = chain(9, 40);
        for at in 0..8_u32 {
            let parent = &calls[at as usize];
            calls.push(builders::call(
                format!("side{at}"),
                Some(parent),
                &[9, at],
                &[(8, -0.5); 30],
            ));
        }
        calls
    };
    let roots = |count: usize, tokens: usize| -> Vec<_> {
        let root = |at| {
            builders::call(format!("r{at}"), None, &vec![at as u32; tokens - at], &[(7, -0.5); 9])
        };
        (0..count).map(root).collect()
    };
    let shapes =
        [chain(1, 1), chain(60, 3), chain(24, 4000), comb, roots(20, 200), roots(2, 30_000)];
    for (at, calls) in shapes.into_iter().enumerate() {
        let group = format!("{}{at}", "a-long-name-of-a-prompt-group".repeat(1 + 3 * (at % 2)));
        let rollout = stored(builders::rollout(&group, 0, 1, calls));
        let groups = vec![builders::group(&group, vec![rollout])];
        let flags = ["--policy", "all_captured", "--data-parallel", "3"];
        let Some(browser) = Browser::of(groups, &flags) else { return };
        laid_out(&browser.ask(1200, false));
    }
}
