//! How often a render asks for memory: the same number on every machine, so it is held.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::values::Values;
use helm_core::{Chart, CompiledChart};

/// What the render of the memcached chart took when it was last counted. Less is welcome: lower
/// the number. More needs a reason.
const ALLOCATIONS: u64 = 350;

#[test]
fn a_render_of_the_memcached_chart_allocates_no_more_than_it_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm-charts/memcached");
    let compiled = CompiledChart::compile(&Chart::load(path).unwrap()).unwrap();
    let render = || {
        let values = compiled.coalesce(Values::new()).unwrap();
        let input = RenderInput::new(ReleaseInfo::new("cache", "prod"), &values);
        compiled.render(&input).unwrap().manifest().len()
    };
    // The first render fills what is kept for all others.
    let length = render();
    let counted = allocation_counter::measure(|| assert_eq!(render(), length));
    assert!(
        counted.count_total <= ALLOCATIONS,
        "{} allocations, {ALLOCATIONS} before",
        counted.count_total
    );
    // Nothing of a render stays.
    assert_eq!(counted.count_current, 0);
}
