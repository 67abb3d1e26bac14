//! What comes back: whether each answer is one that the core may give, which refusals are justified, and what the
//! client does next.

use crate::faults::change::Change;
use crate::faults::linking;
use crate::faults::request::{Kind, Request};
use crate::faults::service::thread_of;
use crate::faults::world::World;
use tombolo_base::{FlushMode, Pvbn};
use tombolo_core::{Answer, Refusal, Span, StatusRun, Token};

impl World {
    pub(crate) fn on_answer(&mut self, token: Token, result: Result<Answer, Refusal>) {
        let Some(request) = self.requests.remove(&token) else {
            panic!("{token:?} is answered twice, or was never asked: {result:?}");
        };
        self.clients.answered += 1;
        if request.is_cancelled {
            return self.forget_cancelled(token, request);
        }
        match result {
            Ok(answer) => self.on_success(token, request, answer),
            Err(refusal) => self.on_refusal(token, request, &refusal),
        }
    }

    /// The client has gone; what the request did or not is for the journal to say.
    fn forget_cancelled(&mut self, token: Token, request: Request) {
        self.model.end_read(token);
        self.forget_edges(&request);
    }

    fn on_success(&mut self, token: Token, request: Request, answer: Answer) {
        let changes_nothing = request.kind.is_read() || request.kind.is_query();
        assert!(
            changes_nothing || matches!(request.kind, Kind::Flush { .. }) || !self.is_fenced(),
            "a gateway that knows of its successor accepts {:?}",
            request.kind
        );
        let (span, since) = (request.span, request.since);
        let reply = thread_of(request.client).map(|thread| (thread, answer.clone()));
        match (&request.kind, answer) {
            (Kind::Read, Answer::Read) => self.model.check_read(token, &request.values),
            (Kind::Verify, Answer::Read) => {
                self.model.check_read(token, &request.values);
                return self.verify_next();
            }
            (Kind::Write { change, .. }, Answer::Done) => {
                let values = &request.values;
                let change = Change::Write { span, values, change };
                self.model.acknowledge(since, &change, self.forced_mode(&request));
            }
            (Kind::Partial(write), Answer::Done) => self.acknowledge_partial(*write, &request),
            (Kind::Commit { change, links }, Answer::Committed) => {
                self.model.acknowledge(since, &Change::Commit { change, links }, None);
            }
            (Kind::Link(_), answer) => return self.on_link_answer(token, request, answer),
            (Kind::Zero { .. }, Answer::Done) => {
                if span.count > 0 {
                    self.model
                        .acknowledge(since, &Change::Zero(span), self.forced_mode(&request));
                }
            }
            (Kind::Flush { covers, mode }, Answer::Done) => self.model.on_flushed(*covers, *mode),
            (Kind::Status, Answer::Status(runs)) => self.check_status(token, span, &runs),
            (Kind::Resolve, Answer::Resolved(runs)) => self.model.check_resolved(token, &runs),
            (Kind::Create { name, blocks, flush }, Answer::Volume(_)) => {
                let change = Change::Create(name, *blocks, *flush);
                self.model.acknowledge(since, &change, Some(FlushMode::Local));
            }
            (Kind::Resize { blocks }, Answer::Volume(_)) => {
                let change = Change::Resize(span.volume, *blocks);
                self.model.acknowledge(since, &change, Some(FlushMode::Local));
            }
            (Kind::SetFlushMode(flush), Answer::Volume(_)) => {
                let change = Change::SetFlushMode(span.volume, *flush);
                self.model.acknowledge(since, &change, Some(FlushMode::Local));
            }
            (Kind::Delete, Answer::Volume(_)) => {
                let change = Change::Delete(span.volume);
                self.model.acknowledge(since, &change, Some(FlushMode::Local));
            }
            (kind, answer) => panic!("{kind:?} is answered by {answer:?}"),
        }
        match reply {
            Some((thread, answer)) => self.reply_with(thread, token, &request, answer),
            None => self.client_rests(request.client),
        }
    }

    /// In which mode the request is flushed. While that changes, either will do.
    pub(crate) fn forced_mode(&self, request: &Request) -> Option<FlushMode> {
        let mode = match self.volume_changed(request) {
            true => FlushMode::Local,
            false => self.model.state().flush_mode(request.span.volume),
        };
        request.kind.is_forced().then_some(mode)
    }

    fn check_status(&mut self, token: Token, span: Span, runs: &[StatusRun]) {
        let told: u64 = runs.iter().map(|run| run.count).sum();
        assert!(
            told <= span.count && (told > 0 || span.count == 0),
            "a status of {} blocks tells of {told}",
            span.count
        );
        let mapped = runs
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.mapped, run.count as usize));
        self.model.check_status(token, mapped);
    }

    fn on_refusal(&mut self, token: Token, request: Request, refusal: &Refusal) {
        let volume_changed = self.model.end_read(token) || self.volume_changed(&request);
        self.model.end_expectation(token);
        self.forget_edges(&request);
        assert!(
            self.may_refuse(&request, refusal, volume_changed),
            "{:?} of {:?} is refused without a reason: {refusal}",
            request.kind,
            request.span
        );
        let may_be_made = matches!(refusal, Refusal::Failed(_)) || request.entries().is_empty();
        assert!(
            may_be_made || !self.model.are_made(request.since, request.entries()),
            "{:?} is refused, and made: {refusal}",
            request.kind
        );
        match request.kind {
            Kind::Verify => {
                self.clients.verify_refusals += 1;
                if !matches!(refusal, Refusal::Lost { .. }) {
                    assert!(
                        self.clients.verify_refusals < 1_000,
                        "reads are refused for ever: {refusal}"
                    );
                    self.clients.to_verify.push_back(request.span);
                } else if request.span.count > 1 {
                    let blocks = request.span.first..request.span.end();
                    let single = blocks.map(|first| Span {
                        first,
                        count: 1,
                        ..request.span
                    });
                    self.clients.to_verify.extend(single);
                }
                self.verify_next();
            }
            _ => match thread_of(request.client) {
                Some(thread) => self.reply_refused(thread, refusal),
                None => self.client_rests(request.client),
            },
        }
    }

    fn volume_changed(&self, request: &Request) -> bool {
        self.model.volume_changed_since(request.span.volume, request.since)
    }

    fn may_refuse(&self, request: &Request, refusal: &Refusal, volume_changed: bool) -> bool {
        let size_of = |span: &Span| self.model.state().size_of(span.volume);
        match refusal {
            Refusal::OutOfRange { .. } => {
                let mut spans = request.spans().into_iter();
                volume_changed || spans.any(|span| size_of(&span).is_some_and(|blocks| span.end() > blocks))
            }
            Refusal::UnknownVolume(_) => volume_changed || size_of(&request.span).is_none(),
            Refusal::VolumeExists(name) => {
                matches!(request.kind, Kind::Create { .. })
                    && self.model.volumes().values().any(|volume| volume.name == *name)
            }
            Refusal::TooLarge(_) => false,
            Refusal::NoRecoveryPoints => {
                let asks = match &request.kind {
                    Kind::Create { flush, .. } | Kind::SetFlushMode(flush) => *flush == FlushMode::Bucket,
                    _ => self.may_wait_for_bucket(request, volume_changed),
                };
                asks && self.scenario.config.recovery_point_ms.is_none()
            }
            Refusal::Busy if self.may_wait_for_bucket(request, volume_changed) && self.has_stalled(request) => true,
            Refusal::Busy => match &request.kind {
                Kind::Write { .. } | Kind::Partial(_) => true,
                Kind::Link(linking) => linking.stage == linking::Stage::Copying || self.life.room_waits > 0,
                // Those need no slot: they wait for a checkpoint alone.
                Kind::Zero { .. }
                | Kind::Commit { .. }
                | Kind::Create { .. }
                | Kind::Resize { .. }
                | Kind::SetFlushMode(_)
                | Kind::Delete => self.life.room_waits > 0,
                _ => false,
            },
            Refusal::CloudUnavailable(_) => {
                // Of the map when that is not all here.
                let reads = match request.kind {
                    Kind::Partial(_) | Kind::Status | Kind::Resolve | Kind::Link(_) => true,
                    _ => request.kind.is_read(),
                };
                self.life.store_faults > 0 && reads
            }
            // A failed sync may have dropped what was never flushed; the restart will find out.
            Refusal::Lost { pvbn, .. } => {
                self.life.has_failed || self.life.checkpoint_sync_has_failed || self.may_be_lost(*pvbn)
            }
            Refusal::Disk(_) => self.life.disk_faults > 0,
            Refusal::Metadata(_) => self.life.metadata_faults > 0,
            Refusal::Failed(_) => self.life.has_failed || self.is_fenced(),
        }
    }

    fn may_wait_for_bucket(&self, request: &Request, volume_changed: bool) -> bool {
        let mode = match &request.kind {
            Kind::Flush { mode, .. } => *mode,
            kind if kind.is_forced() && volume_changed => FlushMode::Bucket,
            kind if kind.is_forced() => self.model.state().flush_mode(request.span.volume),
            _ => FlushMode::Local,
        };
        mode == FlushMode::Bucket
    }

    /// Whether it has waited for as long as something must wait before it is refused.
    fn has_stalled(&self, request: &Request) -> bool {
        self.now >= request.at + self.scenario.config.stall_timeout_ms * 1_000
    }

    /// Only what a flipped bit has reached: in the object, or in the only copy there was.
    fn may_be_lost(&self, pvbn: Pvbn) -> bool {
        self.store.is_damaged(pvbn) || (self.rotten.contains(&pvbn) && !self.life.confirmed_pvbns.contains(&pvbn))
    }

    /// Reads the next span of the final check.
    pub(crate) fn verify_next(&mut self) {
        if let Some(span) = self.clients.to_verify.pop_front() {
            self.ask(usize::MAX, Kind::Verify, span, Vec::new());
        }
    }
}
