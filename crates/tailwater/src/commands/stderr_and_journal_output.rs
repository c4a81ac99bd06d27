//! Where the messages of the daemon go: to standard error as text or JSON, or to the journal of systemd with
//! their fields.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use anyhow::{Context, anyhow, bail};
use tailwater_config::{Config, MessageFormat};
use tailwater_daemon::configuration_reload::SetMessageLevel;
use tracing::Subscriber;
use tracing_journald::{Priority, PriorityMappings};
#[cfg(feature = "otel")]
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

use super::LEVEL_VARIABLE;
#[cfg(feature = "otel")]
use super::trace_export;

/// Prefix of the journal fields that hold the fields of a log message, such as `TAILWATER_CODE`.
const FIELD_PREFIX: &str = "TAILWATER";

/// The environment variable in which systemd names the stream that standard error is connected to.
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

type MessageLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// The messages and traces of a daemon that has started to log.
pub(super) struct Messages {
    /// Sets the level.
    pub set_level: Box<SetMessageLevel>,
    /// Exports traces until it is dropped.
    #[cfg(feature = "otel")]
    pub _traces: Option<trace_export::TraceExport>,
}

/// Checks that this build can do what the configuration requires.
///
/// # Errors
/// If it requires traces, and this build has none.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    if cfg!(not(feature = "otel")) && config.traces.is_some() {
        bail!(
            "[traces]: this build of tailwater has no traces; remove the section, or build with `--features otel` (docs/how-to/traces.md)"
        );
    }
    Ok(())
}

/// Starts to log messages as the configuration says.
///
/// # Errors
/// If the level is not valid, if the configuration requires the journal and there is none, or if traces
/// cannot be exported.
pub(super) fn init(config: &Config) -> anyhow::Result<Messages> {
    check(config)?;
    let messages = &config.messages;
    let of_environment = EnvFilter::try_from_env(LEVEL_VARIABLE).ok();
    let has_variable = of_environment.is_some();
    let of_config = filter(&messages.level).map_err(|reason| anyhow!("{reason}"))?;
    let (filter_now, handle) = reload::Layer::new(of_environment.unwrap_or(of_config));
    let (output, warning) = output(messages.format)?;
    let subscriber = tracing_subscriber::registry().with(output.with_filter(filter_now));
    #[cfg(feature = "otel")]
    let (subscriber, traces) = {
        let (layer, traces) = trace_export::start(config)?.unzip();
        (subscriber.with(layer.map(|layer| layer.with_filter(filter_fn(trace_export::is_span)))), traces)
    };
    subscriber.init();
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    let set_level: Box<SetMessageLevel> = if has_variable {
        let reason = format!("the environment variable {LEVEL_VARIABLE} takes precedence");
        Box::new(move |_| Err(reason.clone()))
    } else {
        Box::new(move |level| handle.reload(filter(level)?).map_err(|error| error.to_string()))
    };
    Ok(Messages {
        set_level,
        #[cfg(feature = "otel")]
        _traces: traces,
    })
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| format!("messages.level = {level:?}: {error}"))
}

/// Returns the layer that writes messages, and a warning if it is not the expected one.
fn output<S>(format: MessageFormat) -> anyhow::Result<(MessageLayer<S>, Option<String>)>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let lines = || tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let text = || lines().with_ansi(std::io::stderr().is_terminal()).boxed();
    let json = || lines().json().flatten_event(true).boxed();
    Ok(match format {
        MessageFormat::Text => (text(), None),
        MessageFormat::Json => (json(), None),
        MessageFormat::Journal => {
            let journal =
                journal().context("messages.format = \"journal\": the journal cannot be reached")?;
            (journal.boxed(), None)
        }
        MessageFormat::Auto if is_connected_to_journal() => match journal() {
            Ok(journal) => (journal.boxed(), None),
            Err(error) => {
                let warning = format!("the journal does not get the fields of messages: {error}");
                (json(), Some(warning))
            }
        },
        MessageFormat::Auto if std::io::stderr().is_terminal() => (text(), None),
        MessageFormat::Auto => (json(), None),
    })
}

fn journal() -> std::io::Result<tracing_journald::Layer> {
    // journald's levels start at "debug". The default would show ordinary messages as "notice".
    let priorities = PriorityMappings {
        info: Priority::Informational,
        debug: Priority::Debug,
        trace: Priority::Debug,
        ..PriorityMappings::new()
    };
    let layer = tracing_journald::layer()?;
    Ok(layer.with_field_prefix(Some(FIELD_PREFIX.to_owned())).with_priority_mappings(priorities))
}

/// Whether standard error is the stream that the variable names. A program that redirects the output of the
/// daemon gets the variable too, and wants lines.
fn is_connected_to_journal() -> bool {
    let stream = std::env::var(STREAM_VARIABLE).ok();
    let standard_error = rustix::fs::fstat(std::io::stderr().as_fd()).ok();
    match (stream, standard_error) {
        (Some(stream), Some(file)) => stream == format!("{}:{}", file.st_dev, file.st_ino),
        _ => false,
    }
}
