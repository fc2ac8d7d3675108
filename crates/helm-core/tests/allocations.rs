//! The number of allocations of a render. It is the same on every machine, so a test limits it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::values::Values;
use helm_core::{Chart, CompiledChart};

/// Allocations of a render of the memcached chart. If it drops, lower this number; raise it only
/// for a reason.
const ALLOCATIONS: u64 = 350;

#[test]
fn render_of_the_memcached_chart_stays_within_its_allocation_limit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm-charts/memcached");
    let compiled = CompiledChart::compile(&Chart::load(path).unwrap()).unwrap();
    let render = || {
        let values = compiled.coalesce(Values::new()).unwrap();
        let input = RenderInput::new(ReleaseInfo::new("cache", "prod"), &values);
        compiled.render(&input).unwrap().manifest().len()
    };
    // The first render fills the caches.
    let length = render();
    let counted = allocation_counter::measure(|| assert_eq!(render(), length));
    assert!(
        counted.count_total <= ALLOCATIONS,
        "{} allocations, {ALLOCATIONS} before",
        counted.count_total
    );
    // A render retains nothing.
    assert_eq!(counted.count_current, 0);
}
