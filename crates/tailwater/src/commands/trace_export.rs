//! Traces: sends the spans of finished work to a receiver of OpenTelemetry. The crates `apply` and `daemon`
//! report the spans as events of `tracing` ([`tailwater_apply::trace_span_record`]).

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tailwater_apply::trace_span_record::{SPAN_FIELD, SPAN_TARGET, SpanRecord};
use tailwater_config::Config;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer};

/// How long an export may take, and how long a daemon that stops waits for the last one.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);

/// Exports spans until it is dropped.
#[derive(Debug)]
pub(super) struct TraceExport(SdkTracerProvider);

impl Drop for TraceExport {
    fn drop(&mut self) {
        // The exporter itself logs a failure.
        let _ = self.0.shutdown_with_timeout(EXPORT_TIME_MAX);
    }
}

/// The layer that receives spans.
#[derive(Debug)]
pub(super) struct SpanLayer(SdkTracer);

/// Starts to export to the receiver of the configuration. Must not be called within a runtime.
///
/// # Errors
/// If the exporter cannot be created.
pub(super) fn start(config: &Config) -> anyhow::Result<Option<(SpanLayer, TraceExport)>> {
    let Some(traces) = &config.traces else { return Ok(None) };
    // Ignore an error: it means that the process already has a provider, which works equally well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = format!("{}/v1/traces", traces.endpoint.expose().trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIME_MAX)
        .build()
        .context("traces.endpoint")?;
    let mut resource = Resource::builder().with_service_name("tailwater");
    resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    resource = resource.with_attribute(KeyValue::new("host.name", host));
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
    let provider = provider.build();
    Ok(Some((SpanLayer(provider.tracer("tailwater")), TraceExport(provider))))
}

/// Whether an event contains a span.
pub(super) fn is_span(metadata: &Metadata<'_>) -> bool {
    metadata.target() == SPAN_TARGET && *metadata.level() == Level::TRACE
}

impl<S: Subscriber> Layer<S> for SpanLayer {
    fn on_event(&self, event: &Event<'_>, _context: LayerContext<'_, S>) {
        let mut found = SpanVisitor(None);
        event.record(&mut found);
        if let Some(span) = found.0 {
            export(&self.0, &span, &Context::new());
        }
    }
}

struct SpanVisitor(Option<SpanRecord>);

impl Visit for SpanVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == SPAN_FIELD {
            self.0 = serde_json::from_str(value).ok();
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

fn export(tracer: &SdkTracer, record: &SpanRecord, parent: &Context) {
    let start = SystemTime::UNIX_EPOCH + Duration::from_micros(record.start_us);
    let attributes = record.attributes.iter().filter_map(|(name, value)| {
        Some(KeyValue::new(format!("tailwater.{name}"), attribute_value(value)?))
    });
    let builder = SpanBuilder::from_name(record.name.clone())
        .with_kind(SpanKind::Internal)
        .with_start_time(start)
        .with_attributes(attributes.collect::<Vec<_>>());
    let mut span = tracer.build_with_context(builder, parent);
    if let Some(error) = &record.error {
        span.set_status(Status::error(error.clone()));
    }
    let context = parent.with_remote_span_context(span.span_context().clone());
    for child in &record.children {
        export(tracer, child, &context);
    }
    span.end_with_timestamp(start + Duration::from_micros(record.duration_us));
}

fn attribute_value(value: &serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::Bool(value) => Some(Value::Bool(*value)),
        serde_json::Value::String(text) => Some(Value::String(text.clone().into())),
        serde_json::Value::Number(number) => {
            number.as_i64().map(Value::I64).or_else(|| number.as_f64().map(Value::F64))
        }
        _ => None,
    }
}
