//! Own code in the manager, such as a server or a periodic task.

use futures::future::BoxFuture;

use super::{Controller, ControllerContext, ControllerError};

type RunFunction =
    Box<dyn FnOnce(ControllerContext) -> BoxFuture<'static, Result<(), ControllerError>> + Send>;

/// Runs a function in the manager, beside the controllers.
///
/// The function runs while this process is the leader, until it returns or
/// [`ControllerContext::stop`] is cancelled; the manager waits for it when it stops. An error ends the
/// process.
///
/// ```no_run
/// # async fn run(options: operator_runtime::options::Options) -> Result<(), operator_runtime::manager::ManagerError> {
/// use std::time::Duration;
///
/// use operator_runtime::manager::{Manager, runnable};
///
/// Manager::new(options)
///     .with(runnable("report", |context| async move {
///         let hour = || tokio::time::sleep(Duration::from_secs(3600));
///         while context.stop.run_until_cancelled(hour()).await.is_some() {
///             let version = context.client().apiserver_version().await?;
///             println!("{}", version.git_version);
///         }
///         Ok(())
///     }))
///     .run()
///     .await
/// # }
/// ```
pub fn runnable<F, Fut>(name: &str, run: F) -> Runnable
where
    F: FnOnce(ControllerContext) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), ControllerError>> + Send + 'static,
{
    Runnable {
        name: name.to_owned(),
        needs_leadership: true,
        run: Box::new(move |context| Box::pin(run(context))),
    }
}

/// A function that runs in the manager; see [`runnable`].
pub struct Runnable {
    name: String,
    needs_leadership: bool,
    run: RunFunction,
}

impl Runnable {
    /// Runs the function on every replica, and not only on the leader. Its client may write at any
    /// time.
    #[must_use]
    pub fn on_every_replica(mut self) -> Self {
        self.needs_leadership = false;
        self
    }
}

impl Controller for Runnable {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_leadership(&self) -> bool {
        self.needs_leadership
    }

    fn runs_alone(&self) -> bool {
        self.needs_leadership
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        (self.run)(context)
    }
}
