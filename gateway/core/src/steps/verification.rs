//! Whether the cloud still has what a duplicate equals. Before the copy of a written block goes because an object has the
//! same contents, this life of the gateway has put that object, read from it, or asked the store for it. Until then
//! the block keeps its slot, like a follower of an upload.
//!
//! One request without a body per object and life, for the 64 blocks of a pack; docs/decisions/0010-lost-objects.md.

use crate::core_state::Core;
use crate::event::{Command, JobId, StoreFailure};
use crate::state::dirty::Stage;
use crate::state::verifications::{Check, Follower};
use alloc::{sync::Arc, vec::Vec};
use tombolo_base::{ObjectDescriptor, Pvbn};

impl Core {
    /// Whether a block may be redirected to `existing` now; if not, it follows that until its object is verified.
    pub(crate) fn may_redirect(&mut self, pvbn: Pvbn, existing: Pvbn) -> bool {
        let descriptor = self.descriptor_of(existing);
        if let Some(descriptor) = &descriptor
            && self.verification.present.get(descriptor.first_pvbn().0).is_some()
        {
            return true;
        }
        self.flush.follower_count += 1;
        self.dirty.set_stage(pvbn, Stage::AwaitsOriginal);
        match descriptor {
            Some(descriptor) => self.follow_check(descriptor, [(pvbn, existing)]),
            None => {
                self.verification.unlocated.entry(existing).or_default().push(pvbn);
                self.load_descriptor_to_verify(existing);
            }
        }
        false
    }

    fn follow_check(&mut self, descriptor: Arc<ObjectDescriptor>, followers: impl IntoIterator<Item = Follower>) {
        let first = descriptor.first_pvbn().0;
        let check = self.verification.checks.entry(first).or_insert_with(|| Check {
            descriptor,
            followers: Vec::new(),
            running: None,
            retry_at: None,
            failures: 0,
        });
        check.followers.extend(followers);
    }

    /// The descriptor of `existing` is in memory, or there is none.
    pub(crate) fn on_located(&mut self, existing: Pvbn) {
        let followers = self.verification.unlocated.remove(&existing).unwrap_or_default();
        match self.descriptor_of(existing) {
            Some(descriptor) => {
                let followers = followers.into_iter().map(|pvbn| (pvbn, existing));
                self.follow_check(descriptor, followers);
            }
            None => {
                // The index knows what local metadata does not.
                self.losses.distrust(existing);
                self.requeue_followers(followers);
            }
        }
    }

    pub(crate) fn on_not_located(&mut self, existing: Pvbn) {
        let followers = self.verification.unlocated.remove(&existing).unwrap_or_default();
        self.requeue_followers(followers);
        self.hash_later();
    }

    pub(crate) fn pump_verification(&mut self) {
        if self.verification.checks.is_empty() {
            return;
        }
        let mut free = self
            .config
            .uploads_max
            .saturating_sub(self.verification.running_count());
        let (now, next_job) = (self.now, &mut self.next_job);
        for check in self.verification.checks.values_mut() {
            if free == 0 {
                return;
            }
            if check.running.is_some() || check.retry_at.is_some_and(|at| now < at) {
                continue;
            }
            *next_job += 1;
            let job = JobId(*next_job);
            check.running = Some(job);
            check.retry_at = None;
            free -= 1;
            let descriptor = check.descriptor.clone();
            self.out.push(Command::Verify { job, descriptor });
        }
    }

    pub(crate) fn on_verified(&mut self, job: JobId, result: Result<(), StoreFailure>) {
        let mut checks = self.verification.checks.iter();
        let Some(first) = checks
            .find(|(_, check)| check.running == Some(job))
            .map(|(first, _)| *first)
        else {
            return;
        };
        if let Err(failure) = &result
            && failure.retryable
        {
            self.store_failed(failure);
            if let Some(check) = self.verification.checks.get_mut(&first) {
                check.running = None;
                check.retry_at = Some(self.now.plus_millis(self.config.upload_retry_ms(check.failures)));
                check.failures += 1;
            }
            return;
        }
        self.store_answered();
        let Some(check) = self.verification.checks.remove(&first) else {
            return;
        };
        match result {
            Ok(()) => {
                self.verification.is_present_now(&check.descriptor);
                // A read may have found one of its blocks altered meanwhile.
                let (good, lost): (Vec<_>, Vec<_>) =
                    check.followers.into_iter().partition(|(_, to)| self.is_in_cloud(*to));
                self.requeue_followers(lost.into_iter().map(|(pvbn, _)| pvbn));
                let (records, dead) = self.redirect_followers(good);
                self.commit_redirects(records, dead);
                self.request_sync_under_pressure();
            }
            Err(failure) => {
                self.lose_object(&check.descriptor, Vec::new());
                self.losses.tell_object(&check.descriptor, &failure.reason);
                self.requeue_followers(check.followers.into_iter().map(|(pvbn, _)| pvbn));
            }
        }
    }
}
