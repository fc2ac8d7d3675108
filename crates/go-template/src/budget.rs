//! Limits that stop hostile templates, and the counters of one render.

mod stop;

use std::time::Duration;

pub use stop::{Cancel, Stop};

/// What one render may use. The defaults are far above what real charts need.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Templates within templates (`template`, `include`, `tpl`), in levels.
    pub depth: usize,
    /// Evaluated actions, calls and loop rounds, and elements that functions make.
    pub steps: u64,
    /// Bytes that all templates write, counted again where `include` returns them.
    pub output: usize,
    /// Bytes of one string that a function makes.
    pub string: usize,
    /// Rounds of one `range` over an integer, and elements of one list that a function makes.
    pub range: usize,
    /// Memory of one compiled regular expression, in bytes; 48 MiB are the most that can be had.
    pub regex: usize,
    /// Private keys that functions make; an RSA key takes up to some seconds.
    pub keys: usize,
    /// Nesting of one value that is printed, compared or encoded, in levels.
    pub nesting: usize,
    /// Time for the whole render.
    pub time: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 5_000,
            steps: 100_000_000,
            output: 512 << 20,
            string: 128 << 20,
            range: 10_000_000,
            regex: 48 << 20,
            keys: 50,
            nesting: 1_000,
            time: Some(Duration::from_mins(1)),
        }
    }
}

/// A limit that a render went over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Templates call each other without end, or almost.
    #[error("exceeded maximum template depth ({limit})")]
    Depth {
        /// The limit, in levels.
        limit: usize,
    },
    /// The templates do too much work.
    #[error("the templates take more than {limit} steps")]
    Steps {
        /// The limit.
        limit: u64,
    },
    /// The output is too long.
    #[error("the templates write more than {limit} bytes")]
    Output {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A function was asked for a string that is too long.
    #[error("the result would be longer than {limit} bytes")]
    String {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A loop or list is too long.
    #[error("{length} elements are more than the allowed {limit}")]
    Range {
        /// The length that was asked for.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A regular expression takes too much memory.
    #[error("the regular expression takes more than {limit} bytes of memory")]
    Regex {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The templates make too many keys.
    #[error("the templates make more than {limit} private keys")]
    Keys {
        /// The limit.
        limit: usize,
    },
    /// A value nests too deep, usually because it holds itself.
    #[error("the value is nested more than {limit} levels deep; does it hold itself?")]
    Nesting {
        /// The limit, in levels.
        limit: usize,
    },
    /// The render takes too long.
    #[error("the templates take longer than {limit:?}")]
    Time {
        /// The limit.
        limit: Duration,
    },
    /// Somebody called [`Cancel::cancel`].
    #[error("the render was cancelled")]
    Cancelled,
}

/// The limits of a render with what it has used of them.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    steps: u64,
    output: usize,
    depth: usize,
    keys: usize,
    stop: Stop,
    /// The step at which the clock and the cancel handle are looked at next.
    next_look: u64,
}

/// Looking at the clock costs as much as some dozen steps.
const STEPS_BETWEEN_LOOKS: u64 = 4_096;

impl Budget {
    /// Starts the clock.
    pub(crate) fn new(limits: Limits) -> Self {
        let stop = Stop::new(Cancel::new(), limits.time);
        Self {
            limits,
            steps: 0,
            output: 0,
            depth: 0,
            keys: 0,
            stop,
            next_look: STEPS_BETWEEN_LOOKS,
        }
    }

    /// Ends the render when `stop` says so, which takes the place of the limit on time.
    pub(crate) fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
        // What was cancelled before it began does not begin.
        self.next_look = 0;
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts work. A function that makes or visits `steps` elements says so here first.
    #[inline]
    pub fn step(&mut self, steps: u64) -> Result<(), BudgetError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps < self.next_look {
            Ok(())
        } else {
            self.look()
        }
    }

    #[cold]
    fn look(&mut self) -> Result<(), BudgetError> {
        self.next_look = self.steps.saturating_add(STEPS_BETWEEN_LOOKS);
        if self.steps > self.limits.steps {
            return Err(BudgetError::Steps {
                limit: self.limits.steps,
            });
        }
        self.stop.check()
    }

    /// Checks the length of a string before it is made, and counts it as work.
    pub fn string(&mut self, length: usize) -> Result<(), BudgetError> {
        if length > self.limits.string {
            return Err(BudgetError::String {
                limit: self.limits.string,
            });
        }
        // Copying 64 bytes costs about as much as a step.
        self.step(length as u64 / 64)
    }

    /// Checks the length of a list before it is made, and counts it as work.
    pub fn range(&mut self, length: usize) -> Result<(), BudgetError> {
        if length > self.limits.range {
            return Err(BudgetError::Range {
                length,
                limit: self.limits.range,
            });
        }
        self.step(length as u64)
    }

    /// Checks the memory of a compiled regular expression.
    pub(crate) fn regex(&self, bytes: usize) -> Result<(), BudgetError> {
        let limit = self.limits.regex;
        if bytes > limit {
            return Err(BudgetError::Regex { limit });
        }
        Ok(())
    }

    /// Counts a private key before it is made, and the work that it is; looks at the clock.
    pub(crate) fn key(&mut self, steps: u64) -> Result<(), BudgetError> {
        let limit = self.limits.keys;
        if self.keys >= limit {
            return Err(BudgetError::Keys { limit });
        }
        self.keys += 1;
        self.steps = self.steps.saturating_add(steps);
        self.look()
    }

    /// Counts bytes written.
    pub(crate) fn output(&mut self, bytes: usize) -> Result<(), BudgetError> {
        self.output = self.output.saturating_add(bytes);
        if self.output > self.limits.output {
            return Err(BudgetError::Output {
                limit: self.limits.output,
            });
        }
        Ok(())
    }

    /// Goes one template deeper; [`Budget::leave`] must follow when this is `Ok`.
    pub(crate) fn enter(&mut self) -> Result<(), BudgetError> {
        if self.depth >= self.limits.depth {
            return Err(BudgetError::Depth {
                limit: self.limits.depth,
            });
        }
        self.depth += 1;
        Ok(())
    }

    /// How many templates are executing.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_an_error_that_says_what_it_is() {
        let limits = Limits {
            steps: 5_000,
            string: 10,
            range: 3,
            depth: 1,
            ..Limits::default()
        };
        let mut budget = Budget::new(limits);
        assert!(budget.step(5_000).is_ok());
        assert_eq!(budget.step(5_000), Err(BudgetError::Steps { limit: 5_000 }));
        assert_eq!(budget.string(11), Err(BudgetError::String { limit: 10 }));
        assert_eq!(
            budget.range(4),
            Err(BudgetError::Range {
                length: 4,
                limit: 3
            })
        );
        assert!(budget.enter().is_ok());
        assert_eq!(budget.enter(), Err(BudgetError::Depth { limit: 1 }));
    }

    #[test]
    fn every_counter_of_work_sees_that_the_render_is_cancelled() {
        let cancel = Cancel::new();
        let mut budget = Budget::new(Limits::default());
        budget.set_stop(Stop::new(cancel.clone(), None));
        assert!(budget.step(1).is_ok());
        cancel.cancel();
        let cancelled = Err(BudgetError::Cancelled);
        assert_eq!(budget.step(STEPS_BETWEEN_LOOKS), cancelled);
        assert_eq!(budget.range(10_000), cancelled);
        assert_eq!(budget.string(1 << 20), cancelled);
        assert_eq!(budget.key(1), cancelled);
        // Small steps add up.
        let mut steps = (0..STEPS_BETWEEN_LOOKS).map(|_| budget.step(1));
        assert!(steps.any(|step| step == cancelled));
    }

    #[test]
    fn what_was_cancelled_before_it_began_does_not_begin() {
        let cancel = Cancel::new();
        cancel.cancel();
        let mut budget = Budget::new(Limits::default());
        budget.set_stop(Stop::new(cancel, None));
        assert_eq!(budget.step(1), Err(BudgetError::Cancelled));
    }
}
