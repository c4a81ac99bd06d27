//! Parses the text of `/metrics` by the rules of OpenMetrics 1.0 for gauges, counters, histograms and infos.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Time limit of each wait. A passing test never reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The samples in one response of `/metrics`.
#[derive(Debug)]
pub struct Scrape {
    /// The response body, unchanged.
    pub text: String,
    /// Values by sample name and labels. The labels are sorted by name: `name{a="b",c="d"}`.
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    /// Requests `/metrics` from the daemon at `address` (`host:port`).
    pub fn of(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) =
            answer.split_once("\r\n\r\n").context("the response has no empty line after its headers")?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "/metrics does not return status 200: {answer}");
        let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        ensure!(
            head.lines().any(|line| line.eq_ignore_ascii_case(content_type)),
            "the response has no OpenMetrics content type: {head}"
        );
        Self::parse(body)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.strip_suffix("# EOF\n").context("the text does not end with # EOF")?;
        let mut samples = BTreeMap::new();
        let mut families = BTreeSet::new();
        let mut family = Family::default();
        for line in lines.split_terminator('\n') {
            if let Some(comment) = line.strip_prefix("# ") {
                let (keyword, rest) = comment.split_once(' ').with_context(|| line.to_owned())?;
                let (name, value) = rest.split_once(' ').with_context(|| line.to_owned())?;
                if name != family.name {
                    ensure!(
                        is_name(name) && families.insert(name.to_owned()),
                        "the metric name is missing or repeated: {line}"
                    );
                    family = Family { name: name.to_owned(), ..Family::default() };
                }
                family.describe(keyword, value).with_context(|| line.to_owned())?;
            } else {
                let (series, value) = family.sample(line).with_context(|| line.to_owned())?;
                ensure!(samples.insert(series, value).is_none(), "the sample occurs twice: {line}");
            }
        }
        ensure!(!samples.is_empty(), "the response has no samples: {text}");
        Ok(Self { text: text.to_owned(), samples })
    }

    /// Returns the value of a sample, such as `tailwater_manager_leader{cluster="orders"}`.
    pub fn value(&self, series: &str) -> Option<f64> {
        self.samples.get(series).copied()
    }

    /// Whether there is a sample of that name.
    pub fn has(&self, name: &str) -> bool {
        self.samples.keys().any(|series| series.split('{').next() == Some(name))
    }
}

/// The metadata of a metric family, as far as it has been parsed.
#[derive(Default)]
struct Family {
    name: String,
    metric_type: String,
    keywords: BTreeSet<String>,
    has_samples: bool,
}

impl Family {
    fn describe(&mut self, keyword: &str, value: &str) -> Result<()> {
        ensure!(!self.has_samples, "a metadata line of the family follows a sample");
        ensure!(self.keywords.insert(keyword.to_owned()), "the keyword occurs twice for one metric family");
        match keyword {
            "HELP" => {
                ensure!(!value.is_empty() && !value.contains('\\'), "the help text is empty or has escapes")
            }
            "TYPE" => value.clone_into(&mut self.metric_type),
            "UNIT" => ensure!(
                self.name.ends_with(&format!("_{value}")),
                "the metric name does not end with its unit"
            ),
            _ => bail!("the metadata line has an unknown keyword"),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str) -> Result<(String, f64)> {
        self.has_samples = true;
        let suffixes: &[&str] = match self.metric_type.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            "info" => &["_info"],
            other => bail!("unknown metric type {other:?}"),
        };
        let name_end = line.find(['{', ' ']).context("the sample has no value")?;
        let (name, rest) = line.split_at(name_end);
        let suffix = name.strip_prefix(&self.name).filter(|suffix| suffixes.contains(suffix));
        let suffix = suffix.context("the name of the sample does not fit the metric family before it")?;
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        ensure!(
            labels.contains_key("le") == (suffix == "_bucket"),
            "the label le must be on each bucket and on no other sample"
        );
        let value: f64 = rest.strip_prefix(' ').context("the sample has no value")?.parse()?;
        ensure!(
            value.is_finite() && (suffix.is_empty() || value >= 0.0),
            "the value of the sample is not finite, or a count is negative"
        );
        ensure!(suffix != "_info" || value == 1.0, "the value of an info metric must be 1, but is {value}");
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = labels.join(",");
        Ok((if labels.is_empty() { name.to_owned() } else { format!("{name}{{{labels}}}") }, value))
    }
}

/// Returns the labels up to the closing brace, and the text after it.
fn labels(mut rest: &str) -> Result<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").context("a label has no value")?;
        ensure!(is_name(name) && !name.contains(':'), "invalid label name {name:?}");
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().context("the quotes of a label value are not closed")? {
                (at, '"') => break at,
                (_, '\\') => match characters.next() {
                    Some((_, escaped @ ('\\' | '"' | 'n'))) => value.extend(['\\', escaped]),
                    other => bail!("invalid escape {other:?} in a label value"),
                },
                (_, character) => value.push(character),
            }
        };
        ensure!(labels.insert(name, value).is_none(), "label {name} occurs twice");
        let after = &after[end + 1..];
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                return Ok((
                    labels,
                    after.strip_prefix('}').context("the brace after the labels is not closed")?,
                ));
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
}

#[test]
fn invalid_exposition_is_rejected() {
    let good = "# HELP a_seconds x.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds{b=\"c\\\"\",a=\"d\"} 1.5\n# EOF\n";
    let scrape = Scrape::parse(good).expect("the exposition is valid");
    assert_eq!(scrape.value(r#"a_seconds{a="d",b="c\""}"#), Some(1.5));
    assert!(scrape.has("a_seconds") && !scrape.has("a"));
    let histogram = "# TYPE a histogram\na_bucket{le=\"+Inf\"} 2\na_count 2\na_sum 1.5\n# EOF\n";
    let scrape = Scrape::parse(histogram).expect("the exposition is valid");
    assert_eq!((scrape.value("a_bucket{le=\"+Inf\"}"), scrape.value("a_sum")), (Some(2.0), Some(1.5)));
    assert!(Scrape::parse(&histogram.replace("{le=\"+Inf\"}", "")).is_err());
    let sample = "a_seconds{b=\"c\\\"\",a=\"d\"} 1.5\n";
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF\n\n"),
        ("gauge", "counter"),
        ("gauge", "stateset"),
        (" seconds\n", " bytes\n"),
        ("1.5", "NaN"),
        ("1.5", "one"),
        ("b=", "a="),
        ("b=", "1b="),
        ("\\\"", "\\x"),
        (sample, &format!("{sample}{sample}")),
        (sample, &format!("{sample}# TYPE a_seconds gauge\n")),
        (sample, &format!("{sample}# TYPE b gauge\n{}# TYPE a_seconds gauge\n", "b{c=\"d\"} 1\n")),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(Scrape::parse(&bad).is_err(), "an invalid exposition was accepted: {bad}");
    }
}
