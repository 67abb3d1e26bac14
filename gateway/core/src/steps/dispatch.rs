//! A step: an event is taken in, then everything goes on that can.

use crate::core_state::Core;
use crate::event::{Command, Event};
use crate::state::flush_pipeline::Drain;
use crate::state::metadata_loads::Query;
use crate::state::wall_clock::WallClock;
use crate::state::writes::VolumeChange;
use alloc::vec::Vec;
use tombolo_base::Instant;

impl Core {
    /// Takes in an event and appends what is to be done.
    pub fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Command>) {
        assert!(self.out.is_empty(), "a step hands out all of its commands");
        self.now = self.now.max(now);
        self.slots.return_withdrawn(self.now);
        self.resume_transitions();
        self.dispatch(event);
        self.pump_sweep();
        self.pump_succession();
        self.pump();
        // A pump may have refused the read of a partial write's edge.
        while self.partial_writes.has_answers() {
            self.pump();
        }
        self.check_bounds();
        out.append(&mut self.out);
    }

    fn pump(&mut self) {
        self.pump_partial_writes();
        self.pump_writes();
        self.pump_flush();
        self.pump_reads();
        self.pump_fetches();
        self.pump_durability();
        self.pump_policies();
        self.pump_losses();
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Read { token, client, span } => self.on_read(token, client, span),
            Event::Write { token, request } => self.on_write(token, request),
            Event::WritePartly { token, write } => self.on_write_partly(token, write),
            Event::Merged { token, sums } => self.on_merged(token, sums),
            Event::Zero {
                token,
                span,
                force_unit_access,
            } => self.on_zero(token, span, force_unit_access),
            Event::Flush { token, mode } => self.on_flush(token, mode),
            Event::Status { token, span } => self.on_query(token, span, Query::Status),
            Event::Resolve { token, span } => self.on_query(token, span, Query::Resolve),
            Event::Commit { token, change, links } => self.on_commit(token, change, links),
            Event::Cancel { token } => self.on_cancel(token),
            Event::VolumeCreate {
                token,
                name,
                blocks,
                flush,
            } => self.on_volume_change(token, VolumeChange::Create { name, blocks, flush }),
            Event::VolumeResize { token, volume, blocks } => {
                self.on_volume_change(token, VolumeChange::Resize { volume, blocks });
            }
            Event::VolumeFlushMode { token, volume, flush } => {
                self.on_volume_change(token, VolumeChange::FlushMode { volume, flush });
            }
            Event::VolumeDelete { token, volume } => self.on_volume_change(token, VolumeChange::Delete { volume }),
            Event::Drain => self.flush.drain = Some(Drain::Uploading(self.next_pvbn)),
            Event::Lanes(lanes) => self.lanes = lanes.within(&self.config),
            Event::CheckpointNow => self.checkpoints.is_wanted = true,
            Event::SlotsWritten { token, result } => self.on_slots_written(token, result),
            Event::SlotsRead {
                token,
                result,
                corrupt,
                unreadable,
            } => self.on_slots_read(token, result, corrupt, unreadable),
            Event::JournalWritten { lsn, end, result } => self.on_journal_written(lsn, end, result),
            Event::Synced { result } => self.on_synced(result),
            Event::PageLoaded {
                volume,
                page,
                generation,
                result,
            } => {
                self.on_page_loaded(volume, page, generation, result);
            }
            Event::DescriptorLoaded { pvbn, result } => self.on_descriptor_loaded(pvbn, result),
            Event::Fetched { fetch, result } => self.on_fetched(fetch, result),
            Event::Hashed { job, results } => self.on_hashed(job, results),
            Event::Uploaded { job, result } => self.on_uploaded(job, result),
            Event::Verified { job, result } => self.on_verified(job, result),
            Event::CopiesFound { job, copies } => self.on_copies_found(job, copies),
            Event::Checkpointed { result } => self.on_checkpointed(result),
            Event::StoreAsked { result } => self.on_store_asked(&result),
            Event::Published { result } => self.on_published(result),
            Event::Stop { reason } => self.on_stop(reason),
            Event::JournalFull { segment } => self.journal.set_lacking(Some(segment)),
            Event::JournalHasRoom => self.journal.set_lacking(None),
            Event::WallClock { micros } => self.wall = WallClock::new(self.now, micros),
            Event::Tick => {}
        }
    }

    /// When the next [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        Instant::earliest([
            self.write_deadline(),
            self.flush_deadline(),
            self.read_deadline(),
            self.durability_deadline(),
            self.sweep_deadline(),
            self.succession_deadline(),
            self.slots.withdrawn_deadline(),
        ])
    }
}
