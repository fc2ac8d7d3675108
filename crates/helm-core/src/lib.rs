//! Helm without a cluster: charts, values, rendering, manifests and release records.
