//! The files with templates of a chart: each is parsed once, and large charts on the threads of a pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
#[cfg(feature = "parallel")]
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::available_parallelism,
};

use go_template::{Funcs, ParseError, ParsedTemplates, Str, TemplateSet};

use super::{funcs_duration, funcs_json, funcs_toml, funcs_yaml, include};

/// The name of the template set, which Go's errors show for `tpl`.
const SET: &str = "gotpl";

/// The functions of Go, Sprig and Helm.
static FUNCS: LazyLock<Arc<Funcs>> = LazyLock::new(|| {
    let mut funcs = Funcs::new().with(&go_template::sprig::FUNCS);
    // Templates cannot read the environment of the process.
    funcs.remove("env");
    funcs.remove("expandenv");
    for helm in [
        include::FUNCS,
        funcs_yaml::FUNCS,
        funcs_json::FUNCS,
        funcs_toml::FUNCS,
        funcs_duration::FUNCS,
    ] {
        funcs.extend(helm);
    }
    Arc::new(funcs)
});

/// Returns a set without templates, whose templates can call the functions.
pub(super) fn empty_set() -> TemplateSet {
    TemplateSet::new(SET, Arc::clone(&FUNCS))
}

/// A file with templates.
pub(super) struct Source {
    path: String,
    text: Str,
    /// A file with the same text. Charts that use the same library each have a copy of it.
    same: Option<Arc<Source>>,
    /// Whether the threads of the pool were told to parse it.
    #[cfg(feature = "parallel")]
    is_started: AtomicBool,
    /// Whether a thread parses it, or has done so.
    is_taken: AtomicBool,
    parsed: OnceLock<Result<ParsedTemplates, ParseError>>,
}

impl Source {
    pub(super) fn new(path: String, text: Str, same: Option<Arc<Self>>) -> Self {
        Self {
            path,
            text,
            same,
            #[cfg(feature = "parallel")]
            is_started: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
            parsed: OnceLock::new(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns its templates, which are parsed by the first call.
    pub(super) fn parsed(&self) -> Result<&ParsedTemplates, &ParseError> {
        static PARSER: LazyLock<TemplateSet> = LazyLock::new(empty_set);
        let copied = || {
            let same = self.same.as_ref()?.parsed().ok()?;
            same.under(self.path.as_str())
        };
        let parse = || match copied() {
            Some(copy) => Ok(copy),
            None => PARSER.parse_detached(self.path.as_str(), self.text.clone()),
        };
        self.parsed.get_or_init(parse).as_ref()
    }

    pub(super) fn text(&self) -> &Str {
        &self.text
    }

    /// Returns the file whose text is parsed for this one.
    fn original(self: &Arc<Self>) -> &Arc<Self> {
        self.same.as_ref().unwrap_or(self)
    }
}

/// Parses the texts that no thread has taken yet.
fn parse(sources: &[Arc<Source>]) {
    for original in sources.iter().map(Source::original) {
        if !original.is_taken.swap(true, Ordering::Relaxed) {
            let _ = original.parsed();
        }
    }
}

/// Parses files, together with the threads of the pool if many are left. Some may still be parsed by others when
/// it returns, which [`Source::parsed`] waits for.
pub(super) fn parse_all(sources: &[Arc<Source>]) {
    start(sources);
    parse(sources);
}

/// Does not parse files ahead, because there are no threads for it.
#[cfg(not(feature = "parallel"))]
pub(super) fn start(_: &[Arc<Source>]) {}

/// The threads that parse beside the one that needs the templates: one for each further processor, because each
/// thread keeps memory of its own. There are none if they cannot be started.
#[cfg(feature = "parallel")]
static POOL: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let helpers = available_parallelism().map_or(0, |processors| processors.get() - 1);
    if helpers == 0 {
        return None;
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(helpers)
        .build()
        .ok()
});

/// Minimum size of the templates, in bytes, for parsing them on several threads.
#[cfg(feature = "parallel")]
const MIN_PARALLEL_SIZE: usize = 10 << 10;

/// Starts to parse files on the threads of the pool, if they are large. On two processors, the charts of
/// `docs/contributing/benchmarks.md` are loaded, compiled and rendered 1.2 times as fast with it in the median, and up to 1.55
/// times. In a simulation, which has one thread, it does nothing.
#[cfg(feature = "parallel")]
pub(super) fn start(sources: &[Arc<Source>]) {
    if host::is_simulated() {
        return;
    }
    let originals = sources.iter().map(Source::original);
    let left = originals.filter(|source| !source.is_started.load(Ordering::Relaxed));
    let mut left: Vec<_> = left.cloned().collect();
    let size: usize = left.iter().map(|source| source.text.len()).sum();
    // Using the pool starts its threads.
    if size >= MIN_PARALLEL_SIZE
        && let Some(pool) = &*POOL
    {
        for source in &left {
            source.is_started.store(true, Ordering::Relaxed);
        }
        // Nobody waits long for the last one if it is small.
        left.sort_by_key(|source| std::cmp::Reverse(source.text.len()));
        let left: Arc<[_]> = left.into();
        for _ in 0..pool.current_num_threads() {
            let left = Arc::clone(&left);
            // A file that a helper fails to parse is parsed by whoever needs it.
            pool.spawn(move || drop(catch_unwind(AssertUnwindSafe(|| parse(&left)))));
        }
    }
}

#[cfg(all(test, feature = "parallel"))]
mod tests {
    use std::time::SystemTime;

    use super::*;

    struct Fixed;

    impl host::Host for Fixed {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn fill(&self, _: &mut [u8]) {}

        fn key(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_simulation_does_not_parse_on_other_threads() {
        let text = "a".repeat(MIN_PARALLEL_SIZE);
        let source = Arc::new(Source::new("a".to_owned(), text.into(), None));
        let is_started = || {
            start(&[Arc::clone(&source)]);
            source.is_started.load(Ordering::Relaxed)
        };
        let simulated = host::simulate(Fixed);
        assert!(!is_started());
        drop(simulated);
        assert_eq!(is_started(), POOL.is_some());
    }
}
