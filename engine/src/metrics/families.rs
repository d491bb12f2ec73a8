//! Makes families of metrics in one registry, all with the same constant labels.

use std::collections::HashMap;

use prometheus::core::Collector;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Names are literals of the callers, so every name and label is valid and there once; a test makes them all.
const VALID: &str = "names of metrics are valid and distinct";

pub(super) struct Families<'a> {
    registry: &'a Registry,
    labels: HashMap<String, String>,
}

impl<'a> Families<'a> {
    pub(super) fn new(registry: &'a Registry, labels: &[(&str, &str)]) -> Families<'a> {
        Families {
            registry,
            labels: labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        }
    }

    /// The same registry, with more labels.
    pub(super) fn with(&self, labels: &[(&str, &str)]) -> Families<'a> {
        let more = Families::new(self.registry, labels).labels;
        Families { registry: self.registry, labels: self.labels.clone().into_iter().chain(more).collect() }
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.labels.clone())
    }

    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let family = made.expect(VALID);
        self.registry.register(Box::new(family.clone())).expect(VALID);
        family
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    /// One counter for each value of a label, all present from the start.
    pub(super) fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> [IntCounter; N] {
        let family = self.add(IntCounterVec::new(self.opts(name, help), &[label]));
        values.map(|value| family.with_label_values(&[value]))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::with_opts(self.opts(name, help)))
    }

    /// One gauge for each value of a label, all present from the start.
    pub(super) fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> [IntGauge; N] {
        let family = self.add(IntGaugeVec::new(self.opts(name, help), &[label]));
        values.map(|value| family.with_label_values(&[value]))
    }

    /// A gauge that is no whole number.
    pub(super) fn real(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(self.opts(name, help)))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts { common_opts: self.opts(name, help), buckets: buckets.to_vec() };
        self.add(Histogram::with_opts(opts))
    }
}
