//! Brings a release one step closer to what is asked of it, whoever its owner is.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::access::Access;
use super::act::{self, ActContext, ActError};
use super::desired::{self, NextRevision, desired};
use super::events::Notices;
use super::memory::Memory;
use super::observe::{self, Observation};
use super::owner::Reporter;
use super::plan::{self, Step};
use super::publish::{self, Attempt, Published};
use super::reload::{Ended, Trouble, verdict};
use super::report::Report;
use super::setup::Setup;
use super::subject::Subject;
use super::traced;
use crate::cluster::cut_off;

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

    /// Computes the desired state, and executes the step that the plan returns, whose name is put into
    /// `planned`. The next revision is rendered before a second plan, if the first one asks for it.
    async fn take_step(
        &self,
        subject: &Subject,
        observation: &mut Observation,
        memory: &mut Memory,
        notices: &Notices,
        planned: &OnceLock<&'static str>,
    ) -> Result<Report, ActError> {
        let (setup, access) = (&self.setup, &*self.access);
        let mut wanted = match plan::before_inputs(&observation.facts) {
            // Failing templates must not prevent an uninstall.
            Some(_) => None,
            None => Some(desired(setup, access, subject, &mut memory.release, notices).await),
        };
        subject.target.share.shrink();
        if let Some(wanted) = &mut wanted {
            let known = &mut memory.release;
            observe::complete(observation, setup, access, subject, wanted, known).await?;
        }
        let mut rendered = None;
        let step = loop {
            let known = rendered.as_ref().map(|(_, known)| *known);
            let facts = desired::facts(setup, wanted.as_ref(), known);
            let step = plan::next_step(&observation.facts, &facts);
            tracing::debug!(?step, "planned");
            let (Step::Render { upgrade }, Some(Ok(desired))) = (&step, &wanted) else {
                break step;
            };
            let next = NextRevision {
                inputs: &desired.inputs,
                history: &observation.history,
                upgrade: *upgrade,
            };
            let redactor = &mut memory.release.redactor;
            let render = next.content(setup, access, subject, redactor, notices);
            match render.await {
                Ok(render) => rendered = Some(render),
                Err(error) => wanted = Some(Err(error)),
            }
            subject.target.share.shrink();
        };
        planned.get_or_init(|| step.name());
        let context = ActContext {
            setup,
            access,
            subject,
            target: &subject.target,
            observation,
            desired: wanted.as_ref(),
            content: rendered.as_ref().map(|(content, _)| content),
            notices,
        };
        let result = act::run(&step, &context, &mut memory.release).await;
        let latest = access.history(&subject.target);
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
