//! Time limits of attempts, which name the request that was sent last.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::Target;

tokio::task_local! {
    /// The last request of the attempt that runs.
    static LAST: Mutex<Option<Target>>;
}

/// An attempt was cut off because it took too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CutOff {
    /// Time that it had.
    limit: Duration,
    /// The last request.
    last: Option<Target>,
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut off after {} s", self.limit.as_secs())?;
        match &self.last {
            Some(last) => write!(f, "; the last request was: {last}"),
            None => Ok(()),
        }
    }
}

/// Runs a future for no longer than `limit`, and drops it then.
///
/// # Errors
/// Names the last request if it was cut off.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, CutOff> {
    let attempt = async {
        let result = tokio::time::timeout(limit, future).await;
        result.map_err(|_| CutOff {
            limit,
            last: LAST.with(|last| last.lock().take()),
        })
    };
    LAST.scope(Mutex::default(), attempt).await
}

/// Notes a request of the attempt that runs, if one does.
pub(super) fn note(target: &Target) {
    let note = |last: &Mutex<Option<Target>>| {
        *last.lock() = Some(target.clone());
    };
    // Outside of an attempt there is nobody to tell.
    let _ = LAST.try_with(note);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_cut_off_names_its_last_request() {
        let limit = Duration::from_mins(5);
        assert_eq!(within(limit, async { 7 }).await, Ok(7));
        let silent = within(limit, std::future::pending::<()>()).await;
        assert_eq!(silent.unwrap_err().to_string(), "cut off after 300 s");
        let target = |name: &str| Target {
            verb: "patch",
            resource: "configmaps".to_owned(),
            namespace: Some("ns".to_owned()),
            name: Some(name.to_owned()),
        };
        let asking = async {
            note(&target("a"));
            // An attempt within the attempt has its own.
            drop(within(limit / 2, async { note(&target("c")) }).await);
            note(&target("b"));
            std::future::pending::<()>().await;
        };
        let cut = within(limit, asking).await.unwrap_err().to_string();
        let expected = "cut off after 300 s; the last request was: patch configmaps ns/b";
        assert_eq!(cut, expected);
        note(&target("nobody's"));
    }
}
