//! Texts that many objects have in common, such as namespaces and owners: kept once in a process.

use std::sync::{Arc, LazyLock};

use host::HashSet;
use parking_lot::Mutex;

/// Number of texts below which none is dropped.
const FEW: usize = 1024;

static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

struct Texts {
    known: HashSet<Arc<str>>,
    /// Number of texts at which those that nobody uses are dropped.
    limit: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            known: HashSet::default(),
            limit: FEW,
        }
    }
}

impl Texts {
    fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.limit = FEW.max(2 * self.known.len());
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new));
        new
    }
}

/// Returns the text as the process keeps it.
pub(crate) fn shared(text: &str) -> Arc<str> {
    TEXTS.lock().get(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once_and_as_long_as_they_are_used() {
        let mut texts = Texts::default();
        let used = texts.get("used");
        for number in 0..10 * FEW {
            let text = texts.get(&number.to_string());
            assert_eq!(*text, *number.to_string());
        }
        assert!(texts.known.len() <= FEW);
        assert!(Arc::ptr_eq(&used, &texts.get("used")));
    }
}
