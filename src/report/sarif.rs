//! SARIF 2.1.0: one run, a rule per code that was found, a result per finding.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::outcome::{Outcome, line};
use super::{Summary, visible};
use crate::archive::MANIFEST;
use crate::error::{Error, Result};
use crate::finding::{Code, Finding, Severity};
use crate::id::{CallId, CaptureKey, RolloutId};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Characters of a path that are written out in a URI reference.
const NOT_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// Renders a SARIF log. The same findings give the same bytes.
///
/// # Errors
///
/// None is known; the serializer can fail by its type.
pub fn sarif(outcome: &Outcome) -> Result<String> {
    let codes: BTreeSet<Code> = outcome.findings.iter().map(|finding| finding.code).collect();
    let index: BTreeMap<Code, usize> = codes.iter().copied().zip(0..).collect();
    let mut seen: HashMap<String, u64> = HashMap::new();
    let results = outcome.findings.iter().map(|finding| {
        let identity = identity(finding);
        let times = seen.entry(identity.clone()).or_default();
        *times += 1;
        let fingerprint = format!("{identity}:{times}");
        found(outcome, finding, index[&finding.code], fingerprint)
    });
    let log = Log {
        schema: SCHEMA,
        version: "2.1.0",
        runs: [Run {
            results: results.collect(),
            tool: Tool {
                driver: Driver {
                    name: env!("CARGO_PKG_NAME"),
                    version: env!("CARGO_PKG_VERSION"),
                    rules: codes.iter().copied().map(rule).collect(),
                },
            },
            properties: outcome.summary,
        }],
    };
    let text = serde_json::to_string_pretty(&log)
        .map_err(|e| Error::format("cannot write SARIF").because(e))?;
    Ok(text + "\n")
}

fn rule(code: Code) -> Rule {
    Rule {
        id: code,
        short_description: Message::new(code.summary()),
        help: Message::new(code.help()),
        default_configuration: Configuration { level: code.severity() },
    }
}

fn found<'a>(
    outcome: &Outcome,
    finding: &'a Finding,
    rule_index: usize,
    fingerprint: String,
) -> Found<'a> {
    // Code scanning takes no result without a file; the archive stands in for one.
    let archive = || format!("{}/{MANIFEST}", outcome.archive.trim_end_matches('/'));
    let file = outcome.file(finding);
    let region = file.is_some().then(|| line(finding)).flatten();
    let uri = uri(&file.unwrap_or_else(archive));
    let logical = |kind, name: &'a str| LogicalLocation { name, kind };
    let rollout = finding.rollout_id.iter().map(|id| logical("rollout", id.as_str()));
    let call = finding.call_id.iter().map(|id| logical("call", id.as_str()));
    Found {
        rule_id: finding.code,
        rule_index,
        level: finding.severity,
        message: Message::new(&finding.message),
        locations: [Location {
            physical_location: PhysicalLocation {
                artifact_location: ArtifactLocation { uri },
                region: region.map(|start_line| Region { start_line }),
            },
            logical_locations: rollout.chain(call).collect(),
        }],
        partial_fingerprints: Fingerprints { primary_location_line_hash: fingerprint },
        properties: Properties {
            rollout_id: finding.rollout_id.as_ref(),
            call_id: finding.call_id.as_ref(),
            capture_key: finding.location.capture_key.as_ref(),
            field: finding.location.field.as_deref(),
            row: finding.location.row,
            help: &finding.help,
        },
    }
}

/// What a finding is about, whatever line it moved to: code, rollout, call, scope and field; the
/// file where nothing else is known.
fn identity(finding: &Finding) -> String {
    let location = &finding.location;
    let rollout = finding.rollout_id.as_ref().map(RolloutId::as_str);
    let call = finding.call_id.as_ref().map(CallId::as_str);
    let scope = location.capture_key.as_ref().map(CaptureKey::as_str);
    let file = location.file.as_deref().filter(|_| rollout.or(call).or(scope).is_none());
    let mut hasher = blake3::Hasher::new();
    for part in [Some(finding.code.as_str()), rollout, call, scope, location.field.as_deref(), file]
    {
        let part = part.unwrap_or_default();
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    format!("{scheme}{}", utf8_percent_encode(path, NOT_IN_PATHS))
}

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
struct Run<'a> {
    tool: Tool,
    results: Vec<Found<'a>>,
    properties: &'a Summary,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: Code,
    short_description: Message,
    help: Message,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: Severity,
}

/// A plain text message (SARIF 3.11): braces are placeholders unless doubled, and `[text](target)`
/// is a link, which no input may make.
#[derive(Serialize)]
struct Message {
    text: String,
}

impl Message {
    fn new(text: &str) -> Self {
        let text = visible(text).replace('{', "{{").replace('}', "}}").replace("](", "]\\(");
        Self { text }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
    rule_id: Code,
    rule_index: usize,
    level: Severity,
    message: Message,
    locations: [Location<'a>; 1],
    partial_fingerprints: Fingerprints,
    properties: Properties<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    physical_location: PhysicalLocation,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logical_locations: Vec<LogicalLocation<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u64,
}

#[derive(Serialize)]
struct LogicalLocation<'a> {
    name: &'a str,
    kind: &'static str,
}

/// The one name that code scanning compares between runs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fingerprints {
    primary_location_line_hash: String,
}

#[derive(Serialize)]
struct Properties<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_id: Option<&'a RolloutId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture_key: Option<&'a CaptureKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<u64>,
    help: &'a str,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::super::testing::{hostile, outcome};
    use super::*;

    fn log(findings: &[Finding]) -> Value {
        serde_json::from_str(&sarif(&outcome(findings)).unwrap()).unwrap()
    }

    fn wrong(log: &Value) -> Vec<String> {
        let path = "testdata/schemas/sarif-schema-2.1.0.json";
        let schema = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let mut schema: Value = serde_json::from_slice(&schema).unwrap();
        // Draft 4 has no `uri-reference`, which the schema uses; later drafts read it alike.
        schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        validator.iter_errors(log).map(|e| format!("{}: {e}", e.instance_path())).collect()
    }

    #[test]
    fn logs_match_the_published_schema() {
        for findings in [hostile(), Vec::new()] {
            let log = log(&findings);
            assert_eq!(wrong(&log), [""; 0]);
            assert_eq!(log["runs"][0]["results"].as_array().unwrap().len(), findings.len());
        }
        // The check can fail, on formats too.
        let mut log = log(&hostile());
        let location = &mut log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        location["artifactLocation"]["uri"] = "not a uri".into();
        location["region"]["startLine"] = 0.into();
        assert_eq!(wrong(&log).len(), 2);
    }

    #[test]
    fn results_say_what_the_findings_say() {
        let findings = hostile();
        let log = log(&findings);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        let mut fingerprints = BTreeSet::new();
        for (result, finding) in log["runs"][0]["results"].as_array().unwrap().iter().zip(&findings)
        {
            let rule = &rules[result["ruleIndex"].as_u64().unwrap() as usize];
            assert_eq!(result["ruleId"], finding.code.as_str());
            assert_eq!(rule["id"], finding.code.as_str());
            assert_eq!(rule["help"]["text"], finding.code.help());
            assert_eq!(rule["defaultConfiguration"]["level"], finding.code.severity().to_string());
            assert_eq!(result["level"], finding.severity.to_string());
            // SARIF 3.11.5: a viewer reads doubled braces as one.
            let text = result["message"]["text"].as_str().unwrap();
            assert!(!text.contains("]("), "{text}");
            let text = text.replace("{{", "{").replace("}}", "}").replace("]\\(", "](");
            assert_eq!(text, visible(&finding.message));
            let location = &result["locations"][0]["physicalLocation"];
            let line = finding.location.line.filter(|&line| line == 18);
            assert_eq!(location["region"]["startLine"].as_u64(), line);
            assert!(location["artifactLocation"]["uri"].is_string());
            let fingerprint = &result["partialFingerprints"]["primaryLocationLineHash"];
            assert!(fingerprints.insert(fingerprint.as_str().unwrap().to_owned()));
        }
        let uri = |at: usize| {
            let location = &log["runs"][0]["results"][at]["locations"][0]["physicalLocation"];
            location["artifactLocation"]["uri"].as_str().unwrap().to_owned()
        };
        assert_eq!(uri(1), "run.forest/archive.json");
        assert_eq!(uri(2), "file:///abs/a%20b.jsonl");
        assert_eq!(uri(3), "c%3A/d.jsonl");
        assert_eq!(uri(5), "run.forest/calls/part-00000.parquet");
    }

    #[test]
    fn fingerprints_stay_when_lines_move() {
        let finding = |line| {
            Finding::new(Code::CorruptDigest, "x")
                .rollout(&"p00_g0".into())
                .at(crate::finding::Location::line("a.jsonl", line))
        };
        let hash = |log: Value| {
            log["runs"][0]["results"][0]["partialFingerprints"]["primaryLocationLineHash"].clone()
        };
        assert_eq!(hash(log(&[finding(1)])), hash(log(&[finding(2)])));
        let other = finding(1).call(&"c".into());
        assert_ne!(hash(log(&[finding(1)])), hash(log(&[other])));
    }
}
