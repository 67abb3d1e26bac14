//! The service opens at the beginning of each life of the gateway. Before clients go on it is looked at as a whole, and
//! so it is at the end.

use super::jobs::{self, Files, Outcome, Places};
use super::own::Own;
use super::turns::Turn;
use super::{HOUSE, Phase};
use crate::faults::operation::Operation;
use crate::faults::world::World;
use std::sync::Arc;
use tombolo_files::{CheckReport, FileError};

impl World {
    /// A life of the gateway begins.
    pub(crate) fn begin_service(&mut self) {
        if self.service.has_clients() {
            self.schedule_house();
        }
    }

    fn schedule_house(&mut self) {
        let micros = self
            .scenario
            .delays
            .of(self.scenario.delays.client_think, &mut self.service.prng);
        self.schedule(micros, Operation::ShareClientWakes(HOUSE));
    }

    /// The gateway dies.
    pub(crate) fn end_service(&mut self) {
        self.end_threads();
        self.service.files = None;
        self.service.phase = Phase::Closed;
    }

    /// What is in force after that is known by now.
    pub(crate) fn service_recovered(&mut self, may_lose_unflushed: bool) {
        for own in &mut self.service.own {
            own.crash(may_lose_unflushed);
        }
        self.service.common.crash(may_lose_unflushed);
    }

    pub(crate) fn share_client_wakes(&mut self, thread: usize) {
        if !matches!(self.service.turns[thread], Turn::Idle) {
            return;
        }
        let clients = self.service.clients();
        match (thread, self.service.phase) {
            (HOUSE, Phase::Closed) => self.begin_job(HOUSE, jobs::open(clients, self.scenario.share_flush)),
            (HOUSE, Phase::Checked) => self.begin_check(),
            (HOUSE, Phase::Open) | (_, Phase::Closed | Phase::Checked) => {}
            (thread, Phase::Open) if thread <= clients => self.own_wakes(thread - 1),
            (thread, Phase::Open) => self.common_wakes(thread - 1 - clients),
        }
    }

    pub(super) fn job_is_done(&mut self, thread: usize, outcome: Outcome) {
        let clients = self.service.clients();
        match outcome {
            Outcome::Opened(opened) => self.opened(opened),
            Outcome::Checked(checked) => self.checked(checked),
            Outcome::Answered(answer) => self.own_answered(thread - 1, &answer),
            Outcome::Looked(looked) => self.own_looked(thread - 1, looked),
            Outcome::Synced(synced) => self.own_synced(thread - 1, &synced),
            Outcome::Met(met) => self.common_answered(thread - 1 - clients, met),
        }
    }

    fn opened(&mut self, opened: Result<(Arc<Files>, Places), FileError>) {
        self.say(|| {
            format!(
                "the file service is open: {:?}",
                opened.as_ref().map(|(_, places)| places)
            )
        });
        match opened {
            Err(error) if jobs::is_for_now(&error) => self.service.count_refusal(),
            Err(error) => panic!("the file service does not open: {error}"),
            Ok((files, places)) => {
                if let Some(before) = &self.service.places {
                    assert_eq!(*before, places, "what was on stable storage is there again");
                } else {
                    self.service.own = places.own.iter().map(|root| Own::new(*root)).collect();
                    self.service.places = Some(places);
                }
                self.service.files = Some(files);
                self.service.phase = Phase::Checked;
            }
        }
        self.schedule_house();
    }

    fn begin_check(&mut self) {
        let files = self.service.files();
        self.begin_job(HOUSE, Box::new(move || Outcome::Checked(files.check(&mut |_, _| ()))));
    }

    fn checked(&mut self, checked: Result<CheckReport, FileError>) {
        match checked {
            Err(error) if jobs::is_for_now(&error) => return self.schedule_house(),
            Err(error) => panic!("the file service cannot be checked: {error}"),
            Ok(report) => {
                assert!(report.findings.is_empty(), "contradictions: {:?}", report.findings);
                assert!(report.has_totals, "nothing changes while all is checked");
            }
        }
        self.service.phase = Phase::Open;
        for thread in 1..self.service.turns.len() {
            self.client_of_share_rests(thread);
        }
    }

    /// Everything is looked at once more, by a service that nobody else uses.
    pub(crate) fn look_at_service(&mut self) {
        if self.service.has_clients() {
            self.service.own.iter_mut().for_each(Own::want_look);
            self.service.common.want_look();
            self.service.phase = Phase::Checked;
            self.schedule_house();
        }
    }
}
