//! One pass over a release: observe, plan, execute.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_objects::cut_off;
use tokio::time::Instant;

use super::access::Access;
use super::act::error::{ActError, EngineError};
use super::act::{self, ActContext};
use super::desired::{self, NextRevision, Prepared, Wanted, desired};
use super::desired_error::DesiredError;
use super::memory::KnownRelease;
use super::observe::{self, Observation};
use super::plan::{self, Step};
use super::report::Report;
use super::setup::Setup;
use super::subject::Subject;
use super::traced;
use crate::event::Notices;
use crate::release::RecordMeta;

/// Reconciles releases with one configuration.
pub struct Engine {
    /// Chart and options.
    pub setup: Arc<Setup>,
    /// Connections and caches.
    pub access: Arc<Access>,
    /// Time after which a pass is cut off.
    pub limit: Duration,
}

/// The end of a pass.
pub struct Outcome {
    /// The observed state.
    pub observation: Observation,
    /// Events about the pass.
    pub notices: Notices,
    /// The step that was carried out, and what is known after it; `None` if the pass ended before.
    pub taken: Option<Taken>,
    /// Result of the step.
    pub result: Result<Report, EngineError>,
}

/// A step that was carried out.
pub struct Taken {
    /// The step.
    pub step: Step<Prepared>,
    /// The newest record after it.
    pub latest: Option<RecordMeta>,
    /// Whether that record has the desired inputs.
    pub is_wanted: bool,
    /// Whether the inputs cannot be computed, and whether another attempt may succeed.
    pub inputs_fail: Option<bool>,
}

impl Engine {
    /// Takes one step.
    pub async fn advance(&self, subject: &Subject, memory: &mut KnownRelease) -> Outcome {
        let (setup, access, notices) = (&self.setup, &*self.access, Notices::default());
        traced::release(setup, &subject.target);
        let begun = Instant::now();
        let mut observation = observe::observe(setup, access, subject, memory, self.limit).await;
        let mut taken = None;
        let result = if let Some(error) = observation.error.take() {
            Err(error)
        } else {
            let planned = OnceLock::new();
            let left = self.limit.saturating_sub(begun.elapsed());
            let attempt = self.take_step(subject, &mut observation, memory, &notices, &planned);
            match cut_off::within(left, Box::pin(attempt)).await {
                Ok((step, result)) => {
                    taken = step;
                    result
                }
                Err(source) => {
                    let step = planned.get().copied();
                    Err(ActError::CutOff { step, source })
                }
            }
        };
        Outcome {
            observation,
            notices,
            taken,
            result: result.map_err(EngineError::from),
        }
    }

    /// Plans, and executes the step, whose name is put into `planned`.
    async fn take_step(
        &self,
        subject: &Subject,
        observation: &mut Observation,
        memory: &mut KnownRelease,
        notices: &Notices,
        planned: &OnceLock<&'static str>,
    ) -> (Option<Taken>, Result<Report, ActError>) {
        let (setup, access) = (&self.setup, &*self.access);
        let target = &subject.target;
        let plan = self.plan(subject, observation, memory, notices).await;
        let (step, wanted) = match plan {
            Ok(plan) => plan,
            Err(error) => return (None, Err(error)),
        };
        planned.get_or_init(|| step.name());
        let context = ActContext {
            setup,
            access,
            subject,
            target,
            observation,
            desired: wanted.as_ref(),
            notices,
        };
        let result = act::run(&step, &context, memory).await;
        let latest = target.history(access).pop();
        let known = wanted.as_ref().and_then(|wanted| wanted.as_ref().ok());
        let failure = wanted.as_ref().and_then(|wanted| wanted.as_ref().err());
        let digest = known.map(|desired| &desired.inputs.digest);
        let recorded = latest.as_ref().map(|meta| meta.digest.as_ref());
        traced::ended(&step, latest.as_ref(), &result);
        let taken = Taken {
            is_wanted: digest.is_some() && recorded == Some(digest),
            inputs_fail: failure.map(DesiredError::is_transient),
            latest,
            step,
        };
        (Some(taken), result)
    }

    /// Returns the step that is due. A plan that lacks the inputs, or the content of the next revision, asks for them
    /// first.
    async fn plan(
        &self,
        subject: &Subject,
        observation: &mut Observation,
        memory: &mut KnownRelease,
        notices: &Notices,
    ) -> Result<(Step<Prepared>, Option<Wanted>), ActError> {
        let (setup, access) = (&self.setup, &*self.access);
        let target = &subject.target;
        let mut wanted = None;
        let mut content = None;
        loop {
            let known = wanted.as_ref();
            let facts = known.map(|known| desired::facts(setup, known, content.clone()));
            let step = plan::next_step(&observation.facts, facts.as_ref());
            tracing::debug!(step = step.name(), "planned");
            match (&step, &wanted) {
                (Step::Compute, _) => {
                    let mut computed = desired(setup, access, subject, memory, notices).await;
                    target.share.shrink();
                    observe::complete(observation, setup, access, subject, &mut computed, memory)
                        .await?;
                    wanted = Some(computed.map(Arc::new));
                }
                (Step::Render { upgrade }, Some(Ok(desired))) => {
                    let next = NextRevision {
                        desired,
                        history: &observation.history,
                        upgrade: *upgrade,
                    };
                    let redactor = &mut memory.redactor;
                    let rendered = next.content(setup, access, subject, redactor, notices);
                    match rendered.await {
                        Ok(rendered) => content = Some(rendered),
                        Err(error) => wanted = Some(Err(error)),
                    }
                    target.share.shrink();
                }
                _ => return Ok((step, wanted)),
            }
        }
    }
}
