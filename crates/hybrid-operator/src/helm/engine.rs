//! Brings a release one step closer to what is asked of it, whoever its owner is.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_objects::cut_off;
use tokio::time::Instant;

use super::access::Access;
use super::act::error::ActError;
use super::act::{self, ActContext};
use super::desired::{self, NextRevision, desired};
use super::events::Notices;
use super::memory::Memory;
use super::observe::{self, Observation};
use super::owner::Reporter;
use super::plan::{self, Step};
use super::publish::{self, Attempt, Published};
use super::reload::verdict::{Ended, Trouble, verdict};
use super::report::Report;
use super::setup::Setup;
use super::subject::Subject;
use super::traced;

/// Reconciles releases with one configuration.
pub(super) struct Engine {
    pub(super) setup: Arc<Setup>,
    pub(super) access: Arc<Access>,
    /// Time after which a pass is cut off, and its status says so.
    pub(super) limit: Duration,
}

impl Engine {
    /// Takes one step, and reports its result. `pause` is the longest time until the next attempt if this one fails.
    pub(super) async fn advance(
        &self,
        subject: &Subject,
        reporter: &dyn Reporter,
        memory: &mut Memory,
        pause: Duration,
    ) -> Published {
        let (setup, access, notices) = (&self.setup, &*self.access, Notices::default());
        traced::release(setup, &subject.target);
        let begun = Instant::now();
        let mut observation = observe::observe(setup, access, subject, memory, self.limit).await;
        let result = if let Some(error) = observation.error.take() {
            Err(error)
        } else {
            let planned = OnceLock::new();
            let left = self.limit.saturating_sub(begun.elapsed());
            let step = self.take_step(subject, &mut observation, memory, &notices, &planned);
            let result = cut_off::within(left, Box::pin(step)).await;
            result.unwrap_or_else(|source| {
                let step = planned.get().copied();
                Err(ActError::CutOff { step, source })
            })
        };
        let attempt = Attempt {
            observation: &observation,
            notices: &notices,
            result,
            pause,
        };
        publish::publish(setup, access, subject, reporter, memory, attempt).await
    }

    /// Plans, and executes the step, whose name is put into `planned`. A plan that lacks the inputs, or the content of
    /// the next revision, asks for them first.
    async fn take_step(
        &self,
        subject: &Subject,
        observation: &mut Observation,
        memory: &mut Memory,
        notices: &Notices,
        planned: &OnceLock<&'static str>,
    ) -> Result<Report, ActError> {
        let (setup, access) = (&self.setup, &*self.access);
        let (target, release) = (&subject.target, &mut memory.release);
        let mut wanted = None;
        let mut rendered = None;
        let step = loop {
            let content = rendered.as_ref().map(|(_, content)| *content);
            let facts = wanted.as_ref();
            let facts = facts.map(|wanted| desired::facts(setup, wanted, content));
            let step = plan::next_step(&observation.facts, facts.as_ref());
            tracing::debug!(?step, "planned");
            match (&step, &wanted) {
                (Step::Compute, _) => {
                    let mut computed = desired(setup, access, subject, release, notices).await;
                    target.share.shrink();
                    let known = &mut computed;
                    observe::complete(observation, setup, access, subject, known, release).await?;
                    wanted = Some(computed);
                }
                (Step::Render { upgrade }, Some(Ok(desired))) => {
                    let next = NextRevision {
                        inputs: &desired.inputs,
                        history: &observation.history,
                        upgrade: *upgrade,
                    };
                    let redactor = &mut release.redactor;
                    let content = next.content(setup, access, subject, redactor, notices);
                    match content.await {
                        Ok(content) => rendered = Some(content),
                        Err(error) => wanted = Some(Err(error)),
                    }
                    target.share.shrink();
                }
                _ => break step,
            }
        };
        planned.get_or_init(|| step.name());
        let context = ActContext {
            setup,
            access,
            subject,
            target,
            observation,
            desired: wanted.as_ref(),
            content: rendered.as_ref().map(|(content, _)| content),
            notices,
        };
        let result = act::run(&step, &context, release).await;
        let latest = target.history(access);
        let known = wanted.as_ref().and_then(|wanted| wanted.as_ref().ok());
        let failure = wanted.as_ref().and_then(|wanted| wanted.as_ref().err());
        let digest = known.map(|desired| &desired.inputs.digest);
        memory.verdict = verdict(&Ended {
            step: &step,
            latest: latest.last().map(|meta| {
                (
                    meta.status,
                    digest.is_some() && meta.digest.as_ref() == digest,
                )
            }),
            inputs: failure.map(|error| Trouble::of(error.is_transient())),
            error: result
                .as_ref()
                .err()
                .map(|error| Trouble::of(error.is_transient())),
        });
        traced::ended(&step, latest.last(), &result);
        result
    }
}
