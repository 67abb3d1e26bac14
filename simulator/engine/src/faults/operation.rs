//! The core's commands as operations that take time: what each does when it completes, what it has done when the
//! gateway dies before, and how it fails.

use crate::faults::bucket::{RootPut, Unneeded};
use crate::faults::canary::{with_dirty_slots, without_entries};
use crate::faults::clients::no_span;
use crate::faults::request::Kind;
use crate::faults::scans::{Get, Scan};
use crate::faults::scenario::Canary;
use crate::faults::store::Store;
use crate::faults::world::World;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tombolo_base::{BLOCK_BYTES, BlockSum, Fingerprint, Lcbn, ObjectDescriptor, Pvbn, VolumeId};
use tombolo_cloud_driver::object::{ObjectReader, byte_range};
use tombolo_core::local_metadata::{MetadataTransaction, Table, load_descriptor, load_map_page};
use tombolo_core::record::{Batch, Record, SEGMENT_HEADER_BYTES};
use tombolo_core::{
    BlockLoss, Command, DiskError, Entries, Event, FetchItem, Frozen, HashItem, HashResult, JobId, JournalMark,
    JournalWrite, MapPage, Merge, MetadataError, ReadPiece, RecoveryPoint, StoreFailure, Superblock, Token,
    UploadFailure, UploadItem, WritePiece,
};
use tombolo_dedup::Manifest;

/// Of looks that need the store, in permille, so many fail at least.
const NODE_FAILURES: u64 = 50;

type Loaded<T> = Result<T, MetadataError>;

pub(crate) enum Operation {
    ClientWakes(usize),
    ClientLinks(usize),
    /// A client of the file service, by its thread.
    ShareClientWakes(usize),
    /// The second part of a commit that a canary makes in two.
    AskLater(usize, Kind),
    /// A thread of the file service goes on.
    ThreadRuns(usize),
    Deliver(Event),
    WriteSlots {
        token: Token,
        pieces: Vec<WritePiece>,
    },
    Merge {
        token: Token,
    },
    ReadSlots {
        token: Token,
        pieces: Vec<ReadPiece>,
    },
    WriteJournal(JournalWrite),
    /// Covers what had completed when it began.
    Sync {
        upto: u64,
        mark: JournalMark,
    },
    /// The next portion of what local metadata lacks.
    LoadMetadata,
    LoadPage {
        volume: VolumeId,
        page: u64,
        generation: u64,
        /// Read when the operation began; `None`: reads when it completes.
        early: Option<Loaded<MapPage>>,
    },
    LoadDescriptor {
        pvbn: Pvbn,
    },
    Fetch {
        fetch: JobId,
        descriptor: Arc<ObjectDescriptor>,
        items: Vec<FetchItem>,
    },
    Hash {
        job: JobId,
        items: Vec<HashItem>,
    },
    Upload {
        job: JobId,
        items: Vec<UploadItem>,
    },
    /// The next transaction of a checkpoint.
    Checkpoint {
        merge: Merge,
        pages_max: usize,
        manifest: Manifest,
        /// What its sync covers, until that is over.
        upto: Option<u64>,
    },
    /// A link looks for the next stored page of its source.
    LinkLooks {
        token: Token,
        volume: VolumeId,
        page: u64,
    },
    Verify {
        job: JobId,
        descriptor: Arc<ObjectDescriptor>,
    },
    FindCopies {
        job: JobId,
        fingerprints: Vec<Fingerprint>,
    },
    /// The second half of a look at entries: what metadata says of them.
    Get(Get),
    Scan(Scan),
    /// After a failure of stable storage.
    Restart,
    Outage,
    CheckpointOutage,
    SlotRots,
    ObjectRots,
    SectorFails,
    LatePut {
        key: String,
        object: Vec<u8>,
    },
    Publish(Arc<RecoveryPoint>),
    LateRoot(Box<RootPut>),
    /// Objects of which no root has any need.
    RemoveUnneeded(Unneeded),
    /// A gateway looks at its root.
    Renew,
    DiskFills,
    MakeSegment(u64),
    PoliciesChange,
}

impl Operation {
    /// It goes on when the gateway dies: disasters, and requests that are on their way.
    pub fn is_of_the_world(&self) -> bool {
        matches!(
            self,
            Self::Outage
                | Self::CheckpointOutage
                | Self::SlotRots
                | Self::ObjectRots
                | Self::SectorFails
                | Self::LatePut { .. }
                | Self::LateRoot(_)
                | Self::RemoveUnneeded(_)
                | Self::DiskFills
                | Self::PoliciesChange
        )
    }
}

/// How long a PUT may outlive the gateway that made it.
const LATE_PUT_MICROS_MAX: u64 = 2_000_000;

impl World {
    pub(crate) fn carry_out(&mut self, command: Command) {
        let delays = self.scenario.delays.clone();
        let range = match &command {
            Command::WriteSlots { .. } => delays.slots_write,
            Command::ReadSlots { .. } => delays.slots_read,
            Command::WriteJournal(_) => delays.journal_write,
            Command::Sync { .. } => delays.sync,
            Command::LoadPage { .. } | Command::LoadDescriptor { .. } => delays.metadata_read,
            Command::Fetch { .. } | Command::Verify { .. } => delays.get,
            Command::FindCopies { .. } => delays.metadata_read,
            Command::Hash { .. } => delays.hash,
            Command::Upload { .. } | Command::Publish { .. } => delays.put,
            Command::Checkpoint { .. } => delays.checkpoint,
            Command::Merge { token } => return self.begin_merge(*token),
            Command::Answer { .. }
            | Command::TrimJournal { .. }
            | Command::Remember { .. }
            | Command::Forget { .. }
            | Command::TellLoss(_) => return self.carry_out_now(command),
        };
        let mut micros = delays.of(range, &mut self.prng);
        let operation = match command {
            Command::WriteSlots { token, pieces } => {
                let slots = pieces.iter().flat_map(|piece| piece.slots.slots());
                slots.for_each(|slot| self.reuse.check_use(slot));
                Operation::WriteSlots { token, pieces }
            }
            Command::ReadSlots { token, pieces } => Operation::ReadSlots { token, pieces },
            Command::WriteJournal(write) => return self.begin_journal_write(write, micros),
            Command::Sync { mark } => Operation::Sync {
                upto: self.disk.order(),
                mark,
            },
            Command::LoadPage {
                volume,
                page,
                generation,
            } => {
                let early = self.prng.chance(500).then(|| self.load_page(volume, page));
                Operation::LoadPage {
                    volume,
                    page,
                    generation,
                    early,
                }
            }
            Command::LoadDescriptor { pvbn } => Operation::LoadDescriptor { pvbn },
            Command::Fetch {
                fetch,
                descriptor,
                items,
                ..
            } => {
                micros += self.outage_micros();
                items.iter().for_each(|item| self.reuse.check_use(item.slot));
                Operation::Fetch {
                    fetch,
                    descriptor,
                    items,
                }
            }
            Command::Hash { job, items } => Operation::Hash { job, items },
            Command::Upload { job, items } => {
                micros += self.outage_micros();
                items.iter().for_each(|item| self.reuse.check_upload(item.pvbn));
                Operation::Upload { job, items }
            }
            Command::Publish { point } => {
                micros += self.outage_micros();
                Operation::Publish(point)
            }
            Command::Verify { job, descriptor } => {
                micros += self.outage_micros();
                Operation::Verify { job, descriptor }
            }
            Command::FindCopies { job, fingerprints } => Operation::FindCopies { job, fingerprints },
            Command::Checkpoint { frozen, pages_max } => Operation::Checkpoint {
                manifest: self.index.freeze(&self.files, frozen.superblock.lsn),
                merge: Merge::new(frozen, pages_max),
                pages_max,
                upto: Some(self.disk.order()),
            },
            Command::Answer { .. }
            | Command::Merge { .. }
            | Command::TrimJournal { .. }
            | Command::Remember { .. }
            | Command::Forget { .. }
            | Command::TellLoss(_) => return,
        };
        self.schedule(micros, operation);
    }

    fn carry_out_now(&mut self, command: Command) {
        match command {
            Command::Answer { token, result } => self.on_answer(token, result),
            Command::TrimJournal { keep_from } => self.disk.unlink_below(keep_from),
            Command::Remember { descriptor } => {
                for packed in descriptor.blocks() {
                    assert!(
                        self.life.confirmed.insert(packed.fingerprint) || self.forgotten.contains(&packed.fingerprint),
                        "PVBN {} is uploaded although the cloud has its contents",
                        packed.pvbn.0
                    );
                    self.life.confirmed_pvbns.insert(packed.pvbn);
                    self.life.keys.insert(packed.pvbn, descriptor.id().key());
                }
                self.forgotten.extend(self.index.remember(&descriptor));
            }
            Command::Forget { blocks } => self.index.forget(&self.files, &blocks),
            Command::TellLoss(loss) => self.say(|| format!("lost: {loss:?}")),
            _ => {}
        }
    }

    /// During an outage some requests fail quickly and some hang until it ends.
    fn outage_micros(&mut self) -> u64 {
        let left = self.store.outage_until.saturating_sub(self.now);
        if left == 0 || !self.prng.chance(300) {
            return 0;
        }
        // The outage may have begun in another life of the gateway.
        self.life.store_faults += 1;
        left
    }

    fn begin_journal_write(&mut self, mut write: JournalWrite, micros: u64) {
        let head = usize::from(write.offset == 0) * SEGMENT_HEADER_BYTES;
        let identity = self.journal_identity(&write);
        let (batch, length) = match Batch::decode(&write.bytes[head..], identity) {
            Ok(decoded) => decoded,
            Err(error) => panic!("the core writes a batch that cannot be read: {error}"),
        };
        assert_eq!((batch.lsn, batch.lsn.0 + length as u64), (write.lsn, write.end.0));
        assert_eq!(length, write.bytes.len() - head);
        let told = batch.durable_lsn.0;
        assert!(
            told >= self.life.synced,
            "a batch says that LSN {told} is durable, and {} is known to be",
            self.life.synced
        );
        self.model.on_batch(self.now, &batch, write.end.0);
        self.note_written(&batch);
        let config = &self.scenario.config;
        let redirects = batch.records.iter().map(|record| match record {
            Record::Redirect { count, .. } => *count as usize,
            _ => 0,
        });
        let redirected: usize = redirects.sum();
        assert!(
            redirected <= config.followers_max + config.hash_jobs_max * config.hash_blocks,
            "{redirected} blocks are redirected in one batch"
        );
        for record in &batch.records {
            self.look_at_record(record);
            self.reuse.on_record(record, write.end.0);
        }
        if self.scenario.canary == Some(Canary::LoseEntriesOfBatch) {
            write.bytes.truncate(head);
            write.bytes.extend(without_entries(batch, identity));
        }
        if self.scenario.canary == Some(Canary::AckBeforeJournal) {
            let (lsn, end, result) = (write.lsn, write.end, Ok(()));
            self.deliver_in(micros, Event::JournalWritten { lsn, end, result });
            return self.schedule(micros + 20_000, Operation::WriteJournal(write));
        }
        self.schedule(micros, Operation::WriteJournal(write));
    }

    fn look_at_record(&mut self, record: &Record) {
        match record {
            Record::Write { pvbn, slots, sums, .. } => {
                assert!(pvbn.0 >= self.pvbns_end, "PVBN {} is given out again", pvbn.0);
                self.pvbns_end = pvbn.0 + sums.len() as u64;
                let slots = slots.iter().flat_map(|run| run.slots()).map(|slot| slot.0);
                for (slot, pvbn) in slots.zip((0..).map(|offset| pvbn.plus(offset))) {
                    self.slot_pvbns.insert(slot, pvbn);
                    // Its sectors may have failed between its write and its record.
                    if !self.disk.is_whole(Lcbn(slot)) {
                        self.rotten.insert(pvbn);
                    }
                }
            }
            Record::Link(link) => {
                let mut pvbns = (0..link.count).map(|offset| link.pvbn.plus(offset));
                let is_hidden = |pvbn: &Pvbn| self.bucket.hides_losses() && self.rotten.contains(pvbn);
                assert!(
                    pvbns.all(|pvbn| self.life.confirmed_pvbns.contains(&pvbn) || is_hidden(&pvbn)),
                    "{link:?} goes to blocks that are not in the cloud"
                );
            }
            Record::Redirect { count, from, to, .. } => {
                for (from, to) in (0..u64::from(*count)).map(|offset| (from.plus(offset), to.plus(offset))) {
                    assert!(
                        !self.life.told_lost.contains(&to),
                        "a redirect goes to PVBN {}, which is known to be lost",
                        to.0
                    );
                    // That of the very batch, which confirms its object, is not known yet. A lost block has no copy to lose.
                    let key = self.life.keys.get(&to);
                    assert!(
                        self.life.told_lost.contains(&from) || key.is_none_or(|key| self.life.seen.contains(key)),
                        "a redirect goes to PVBN {}, whose object this life has not seen",
                        to.0
                    );
                }
            }
            _ => {}
        }
    }

    pub(crate) fn complete(&mut self, operation: Operation) {
        match operation {
            Operation::ClientWakes(client) => self.client_wakes(client),
            Operation::ClientLinks(client) => self.ask_link(client),
            Operation::ShareClientWakes(thread) => self.share_client_wakes(thread),
            Operation::LoadMetadata => self.load_metadata(),
            Operation::AskLater(client, kind) => drop(self.ask(client, kind, no_span(VolumeId(0)), Vec::new())),
            Operation::ThreadRuns(thread) => self.run_thread(thread),
            Operation::Deliver(event) => self.step(event),
            Operation::WriteSlots { token, pieces } => self.write_slots(token, &pieces),
            Operation::Merge { token } => self.merge(token),
            Operation::ReadSlots { token, pieces } => self.read_slots(token, &pieces),
            Operation::WriteJournal(write) => self.write_journal(write),
            Operation::Sync { upto, mark } => self.sync(upto, mark),
            Operation::LoadPage {
                volume,
                page,
                generation,
                early,
            } => {
                let result = early.unwrap_or_else(|| self.load_page(volume, page));
                self.step(Event::PageLoaded {
                    volume,
                    page,
                    generation,
                    result,
                });
            }
            Operation::LoadDescriptor { pvbn } => {
                let result = self.load_descriptor(pvbn);
                self.step(Event::DescriptorLoaded { pvbn, result });
            }
            Operation::Fetch {
                fetch,
                descriptor,
                items,
            } => {
                let result = self.fetch(&descriptor, &items);
                self.step(Event::Fetched { fetch, result });
            }
            Operation::Hash { job, items } => {
                let results = items.iter().map(|item| self.hash(item)).collect();
                self.step(Event::Hashed { job, results });
            }
            Operation::Upload { job, items } => {
                let result = self.upload(&items);
                self.step(Event::Uploaded { job, result });
                self.perhaps_crash_soon();
            }
            Operation::Checkpoint {
                merge,
                pages_max,
                manifest,
                upto,
            } => self.checkpoint(merge, pages_max, manifest, upto),
            Operation::LinkLooks { token, volume, page } => self.link_has_looked(token, volume, page),
            Operation::Get(get) => self.end_get(get),
            Operation::Scan(scan) => self.end_scan_round(scan),
            Operation::Restart => self.restart_wanted = true,
            Operation::Outage => self.begin_outage(),
            Operation::CheckpointOutage => self.begin_checkpoint_outage(),
            Operation::SlotRots => self.rot_slot(),
            Operation::ObjectRots => self.rot_object(),
            Operation::SectorFails => self.fail_sector(),
            Operation::Verify { job, descriptor } => {
                let result = self.verify_object(&descriptor);
                self.step(Event::Verified { job, result });
            }
            Operation::FindCopies { job, fingerprints } => {
                let find = |fingerprint| self.index.lookup(&self.files, fingerprint);
                let copies = fingerprints.iter().map(find).collect();
                self.step(Event::CopiesFound { job, copies });
            }
            Operation::DiskFills => self.fill_disk(),
            Operation::LatePut { key, object } => self.put_late(key, object),
            Operation::Publish(point) => self.publish(&point),
            Operation::LateRoot(root) => drop(self.put_root(*root)),
            Operation::RemoveUnneeded(unneeded) => self.remove_late(&unneeded),
            Operation::Renew => self.renew(),
            Operation::MakeSegment(segment) => self.make_segment(segment, true),
            Operation::PoliciesChange => self.change_policies(),
        }
    }

    /// The gateway died while this was under way.
    pub(crate) fn interrupt(&mut self, operation: Operation) {
        match operation {
            Operation::WriteSlots { token, pieces } => {
                for (slot, block) in self.blocks_to_write(token, &pieces) {
                    self.interrupt_slot_write(slot, &block);
                }
            }
            Operation::WriteJournal(write) if self.scenario.canary != Some(Canary::AckBeforeJournal) => {
                match self.prng.below(3) {
                    0 => self.disk.write_segment(write.segment, write.offset, &write.bytes),
                    1 => {
                        let (segment, offset) = (write.segment, write.offset);
                        self.disk
                            .write_segment_torn(segment, offset, &write.bytes, &mut self.prng);
                    }
                    _ => {}
                }
            }
            Operation::Sync { upto, mark }
                if self.prng.chance(500)
                    && !self.life.has_failed
                    && !self.life.checkpoint_sync_has_failed
                    && self.scenario.canary != Some(Canary::SkipSync) =>
            {
                self.disk.sync_slots(upto);
                if self.prng.chance(500) {
                    self.disk.sync_segments(upto);
                    self.disk.note(mark);
                }
            }
            Operation::Fetch { descriptor, items, .. } => {
                for item in items {
                    let packed = &descriptor.blocks()[usize::from(item.index)];
                    if let Some(value) = self.model.value_of_pvbn(packed.pvbn) {
                        let block = self.contents.bytes_of(value);
                        self.interrupt_slot_write(item.slot, &block);
                    }
                }
            }
            Operation::Upload { items, .. } => match self.prng.below(4) {
                0 | 1 => drop(self.put_object(&items)),
                2 => self.put_later(&items),
                _ => {}
            },
            Operation::Publish(point) => self.interrupt_publish(&point),
            Operation::Checkpoint {
                mut merge,
                pages_max,
                manifest,
                upto,
            } if self.prng.chance(500) && !self.life.has_failed && !self.life.checkpoint_sync_has_failed => {
                self.sync_for_checkpoint(&merge, upto);
                if self.scenario.canary == Some(Canary::TornCheckpoint) {
                    let mut frozen = Frozen::clone(merge.frozen());
                    frozen.entries = Entries::default();
                    merge = Merge::new(Arc::new(frozen), pages_max);
                }
                while self.prng.chance(700) && matches!(self.commit_part(&mut merge, &manifest), Ok(false)) {}
            }
            _ => {}
        }
    }

    fn interrupt_slot_write(&mut self, slot: Lcbn, block: &Rc<[u8]>) {
        match self.prng.below(3) {
            0 => self.disk.write_slot(slot, block.clone()),
            1 => self.disk.write_slot_torn(slot, block, &mut self.prng),
            _ => {}
        }
    }

    fn blocks_to_write(&self, token: Token, pieces: &[WritePiece]) -> Vec<(Lcbn, Rc<[u8]>)> {
        let request = &self.requests[&token];
        let mut blocks = Vec::new();
        for piece in pieces {
            for offset in 0..piece.slots.count {
                let value = request.values[(piece.index + offset) as usize];
                blocks.push((Lcbn(piece.slots.first.0 + offset), self.contents.bytes_of(value)));
            }
        }
        blocks
    }

    fn write_slots(&mut self, token: Token, pieces: &[WritePiece]) {
        let blocks = self.blocks_to_write(token, pieces);
        let fails = self.is_fault(self.scenario.faults.slot_write_failure)
            || blocks.iter().any(|(slot, _)| !self.disk.is_writable(*slot));
        for (slot, block) in blocks {
            if fails {
                self.interrupt_slot_write(slot, &block);
            } else if self.scenario.canary == Some(Canary::WrongSlot) && self.prng.chance(20) {
                self.disk
                    .write_slot(Lcbn((slot.0 + 1) % self.scenario.config.slot_count), block);
            } else {
                self.disk.write_slot(slot, block);
            }
        }
        let result = self.disk_result(fails, "write of a slot");
        self.step(Event::SlotsWritten { token, result });
    }

    fn disk_result(&mut self, fails: bool, operation: &'static str) -> Result<(), DiskError> {
        if !fails {
            return Ok(());
        }
        self.life.disk_faults += 1;
        let reason = if self.prng.chance(500) { "EIO" } else { "ENOSPC" }.to_string();
        Err(DiskError { operation, reason })
    }

    pub(crate) fn is_fault(&mut self, permille: u64) -> bool {
        !self.is_calm && self.prng.chance(permille)
    }

    fn read_slots(&mut self, token: Token, pieces: &[ReadPiece]) {
        let slots = pieces.iter();
        let slots = slots.flat_map(|piece| (piece.slot.0..piece.slot.0 + piece.sums.len() as u32).map(Lcbn));
        let unreadable: Vec<Lcbn> = slots.filter(|slot| !self.disk.is_readable(*slot)).collect();
        let fails = self.is_fault(self.scenario.faults.slot_read_failure) || !unreadable.is_empty();
        let result = self.disk_result(fails, "read of a slot");
        let mut corrupt = Vec::new();
        let mut read: BTreeMap<usize, Rc<[u8]>> = BTreeMap::new();
        if !fails {
            for piece in pieces {
                for (offset, sum) in (0u32..).zip(&piece.sums) {
                    let slot = Lcbn(piece.slot.0 + offset);
                    let bytes = self.disk.read_slot(slot);
                    if BlockSum::of(&bytes) == *sum {
                        read.insert((piece.index + offset) as usize, bytes);
                    } else {
                        corrupt.push(slot);
                    }
                }
            }
        }
        if let Some(request) = self.requests.get_mut(&token) {
            request.fill(read, &self.contents);
        }
        self.step(Event::SlotsRead {
            token,
            result,
            corrupt,
            unreadable,
        });
    }

    fn write_journal(&mut self, write: JournalWrite) {
        if write.offset == 0
            && let Some(micros) = self.micros_to_room()
        {
            // The world tries again and again; nobody hears of it before.
            return self.schedule(micros + 1, Operation::WriteJournal(write));
        }
        let is_late = self.scenario.canary == Some(Canary::AckBeforeJournal);
        if self.is_fault(self.scenario.faults.journal_write_failure) && !is_late {
            let (segment, offset) = (write.segment, write.offset);
            self.disk
                .write_segment_torn(segment, offset, &write.bytes, &mut self.prng);
            self.on_stable_storage_failure();
            let result = self.disk_result(true, "write of the journal");
            let (lsn, end) = (write.lsn, write.end);
            return self.step(Event::JournalWritten { lsn, end, result });
        }
        self.disk.write_segment(write.segment, write.offset, &write.bytes);
        self.reuse
            .on_journal_written(self.disk.order(), write.lsn.0, write.end.0);
        if write.offset == 0 {
            self.make_segment(write.segment + 1, false);
        }
        if !is_late {
            let (lsn, end, result) = (write.lsn, write.end, Ok(()));
            self.step(Event::JournalWritten { lsn, end, result });
        }
    }

    /// The core stops; the world restarts it a little later.
    fn on_stable_storage_failure(&mut self) {
        if !self.life.has_failed {
            self.life.has_failed = true;
            self.schedule(20_000, Operation::Restart);
        }
    }

    /// After a failed sync the next one succeeds, as Linux has it: it is the core that must not believe it.
    fn sync(&mut self, upto: u64, mark: JournalMark) {
        let fails = self.life.checkpoint_sync_has_failed || self.is_fault(self.scenario.faults.sync_failure);
        if fails {
            self.fail_sync(upto);
            self.on_stable_storage_failure();
        } else {
            if self.scenario.canary != Some(Canary::SkipSync) {
                self.disk.sync_slots(upto);
                self.disk.sync_segments(upto);
                self.reuse.on_synced(upto);
            }
            self.disk.note(mark);
            self.life.synced = self.life.synced.max(mark.lsn.0);
        }
        let result = self.disk_result(fails, "sync");
        self.step(Event::Synced { result });
        self.perhaps_crash_soon();
    }

    fn fail_sync(&mut self, upto: u64) {
        self.disk.fail_sync(upto, &mut self.prng);
        if self.prng.chance(300) {
            self.disk.drop_pages();
        }
    }

    fn metadata_fault(&mut self) -> Option<MetadataError> {
        let fails = self.is_fault(self.scenario.faults.metadata_failure);
        self.life.metadata_faults += u64::from(fails);
        fails.then(|| MetadataError::Local("MDB_MAP_FULL".to_string()))
    }

    /// How many nodes the gateway is given for a look at metadata that is not all here.
    pub(crate) fn nodes_answered(&mut self) -> u64 {
        match self.metadata.is_whole() {
            true => u64::MAX,
            false if self.now < self.store.outage_until => 0,
            // In every world: few have metadata that is not all here, and they not for long.
            false if self.is_fault(self.scenario.faults.get_failure.max(NODE_FAILURES)) => self.prng.below(4),
            false => u64::MAX,
        }
    }

    /// What came of such a look is what the store is told to be like.
    pub(crate) fn note_asked<T>(&mut self, found: Loaded<T>) -> Loaded<T> {
        let result = match &found {
            Err(MetadataError::Unanswered(reason)) => Err(self.store_failure(reason)),
            _ if self.metadata.is_whole() => return found,
            _ => Ok(()),
        };
        if result.is_err() || self.core.snapshot().store.error.is_some() {
            self.deliver_in(0, Event::StoreAsked { result });
        }
        found
    }

    fn load_page(&mut self, volume: VolumeId, page: u64) -> Loaded<MapPage> {
        match self.metadata_fault() {
            Some(error) => Err(error),
            None => {
                let answers = self.nodes_answered();
                let found = self
                    .metadata
                    .ask(answers, |reading| load_map_page(reading, volume, page));
                self.note_asked(found)
            }
        }
    }

    fn load_descriptor(&mut self, pvbn: Pvbn) -> Loaded<Option<Arc<ObjectDescriptor>>> {
        match self.metadata_fault() {
            Some(error) => Err(error),
            None => {
                let answers = self.nodes_answered();
                let found = self.metadata.ask(answers, |reading| load_descriptor(reading, pvbn));
                let found = self.note_asked(found)?;
                Ok(found.map(Arc::new))
            }
        }
    }

    fn checkpoint(&mut self, mut merge: Merge, pages_max: usize, manifest: Manifest, upto: Option<u64>) {
        let result = match self.checkpoint_part(&mut merge, &manifest, upto) {
            Ok(false) => {
                let micros = self.scenario.delays.of(self.scenario.delays.checkpoint, &mut self.prng);
                let next = Operation::Checkpoint {
                    merge,
                    pages_max,
                    manifest,
                    upto: None,
                };
                self.schedule(micros / 4, next);
                return self.perhaps_crash_soon();
            }
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        self.step(Event::Checkpointed { result });
        self.perhaps_crash_soon();
    }

    /// Whether that was the last.
    fn checkpoint_part(&mut self, merge: &mut Merge, manifest: &Manifest, upto: Option<u64>) -> Loaded<bool> {
        if let Some(upto) = upto
            && !self.life.has_failed
            && self.is_fault(self.scenario.faults.sync_failure)
        {
            self.fail_sync(upto);
            self.life.checkpoint_sync_has_failed = true;
        }
        if upto.is_some() && (self.life.has_failed || self.life.checkpoint_sync_has_failed) {
            // A sync has failed, so nobody can say any more what the next one really made durable.
            return Err(MetadataError::Local("the cache file cannot be synced".to_string()));
        }
        if self.now < self.checkpoint_outage_until {
            self.life.metadata_faults += 1;
            return Err(MetadataError::Local("MDB_MAP_FULL".to_string()));
        }
        if let Some(error) = self.metadata_fault() {
            return Err(error);
        }
        if self.now < self.full_until && self.prng.chance(900) {
            self.life.metadata_faults += 1;
            return Err(MetadataError::Local("no space left on device".to_string()));
        }
        self.sync_for_checkpoint(merge, upto);
        let manifest = match self.scenario.canary {
            Some(Canary::FreezeIndexLate) => self.index.freeze_anew(&self.files),
            _ => manifest.clone(),
        };
        let is_last = self.commit_part(merge, &manifest)?;
        if is_last {
            self.index.manifest_is_durable(&self.files, &manifest);
            self.reuse.on_checkpoint(merge.frozen().superblock.lsn.0);
        }
        Ok(is_last)
    }

    fn sync_for_checkpoint(&mut self, merge: &Merge, upto: Option<u64>) {
        let Some(upto) = upto else { return };
        let (skips_cache, skips_journal) = (
            self.scenario.canary == Some(Canary::SkipCacheSyncAtCheckpoint),
            self.scenario.canary == Some(Canary::SkipJournalSyncAtCheckpoint),
        );
        if !skips_cache {
            self.disk.sync_slots(upto);
        }
        if !skips_journal {
            self.disk.sync_segments(upto);
        }
        if !skips_cache && !skips_journal {
            let Superblock { segment, lsn, .. } = merge.frozen().superblock;
            self.disk.note(JournalMark { segment, lsn });
            self.disk.sync_marks();
        }
    }

    fn commit_part(&mut self, merge: &mut Merge, manifest: &Manifest) -> Loaded<bool> {
        let superblock = merge.frozen().superblock.encode();
        let answers = self.nodes_answered();
        let mut transaction = self.metadata.begin_asking(answers);
        let merged = merge.step(&mut transaction.asked());
        let is_last = match merged.map_err(MetadataError::from) {
            Ok(is_last) => is_last,
            failed => {
                drop(transaction);
                return self.note_asked(failed);
            }
        };
        if self.scenario.canary == Some(Canary::SuperblockAhead) {
            let Ok(()) = transaction.put(Table::Super, &[], &superblock);
        }
        if is_last && self.scenario.canary == Some(Canary::KeepDirtySlots) {
            for (page, bytes) in with_dirty_slots(merge.frozen(), &self.metadata) {
                let Ok(()) = transaction.put(Table::Slots, &page.to_be_bytes(), &bytes);
            }
        }
        let changes = transaction.finish();
        self.metadata.install(changes, is_last.then(|| manifest.encode()));
        if is_last {
            self.check_audit();
        }
        // It takes longer than all else that a transaction is followed by.
        if self.prng.chance(150) {
            self.check_bucket_audit();
        }
        Ok(is_last)
    }

    fn hash(&mut self, item: &HashItem) -> HashResult {
        // What is no more than a cable does not fail as often as it takes to give the block up.
        let is_passing = self.is_fault(self.scenario.faults.slot_read_failure) && self.unread.insert(item.pvbn);
        if is_passing || !self.disk.is_readable(item.slot) {
            self.life.disk_faults += 1;
            return HashResult::Unreadable;
        }
        let bytes = self.disk.read_slot(item.slot);
        if BlockSum::of(&bytes) != item.sum {
            return HashResult::Corrupt;
        }
        let fingerprint = Fingerprint::of(&bytes);
        HashResult::Done {
            fingerprint,
            existing: self.index.lookup(&self.files, &fingerprint),
        }
    }

    fn store_failure(&mut self, reason: &str) -> StoreFailure {
        self.life.store_faults += 1;
        StoreFailure {
            retryable: true,
            reason: reason.to_string(),
        }
    }

    fn upload(&mut self, items: &[UploadItem]) -> Result<ObjectDescriptor, UploadFailure> {
        let fails = self.is_fault(self.scenario.faults.put_failure) || self.now < self.store.outage_until;
        if fails {
            return Err(UploadFailure::Store(self.store_failure("503 Slow Down")));
        }
        let unreadable = items.iter().filter(|item| !self.disk.is_readable(item.slot));
        let unreadable: Vec<Pvbn> = unreadable.map(|item| item.pvbn).collect();
        if !unreadable.is_empty() {
            self.life.disk_faults += 1;
            let error = DiskError {
                operation: "read of a slot",
                reason: "EIO".to_string(),
            };
            return Err(UploadFailure::Disk { error, unreadable });
        }
        if self.scenario.canary == Some(Canary::ConfirmBeforeUpload) && self.prng.chance(100) {
            let (descriptor, object) = self.pack(items).map_err(UploadFailure::Corrupt)?;
            let key = descriptor.id().key();
            self.schedule(LATE_PUT_MICROS_MAX, Operation::LatePut { key, object });
            return Ok(descriptor);
        }
        let descriptor = self.put_object(items).map_err(UploadFailure::Corrupt)?;
        self.life.seen.insert(descriptor.id().key());
        if self.is_fault(self.scenario.faults.put_reply_lost) {
            return Err(UploadFailure::Store(self.store_failure("connection reset by peer")));
        }
        Ok(descriptor)
    }

    fn put_object(&mut self, items: &[UploadItem]) -> Result<ObjectDescriptor, Vec<Pvbn>> {
        let (descriptor, object) = self.pack(items)?;
        self.store.put(descriptor.id().key(), object);
        if self.scenario.canary == Some(Canary::TwoContentsOfAName) && items.len() > 1 {
            let (_, other) = self.pack(&items[1..])?;
            self.store.put(descriptor.id().key(), other);
        }
        Ok(descriptor)
    }

    /// The request is on its way still, and arrives in the midst of another life.
    fn put_later(&mut self, items: &[UploadItem]) {
        if let Ok((descriptor, object)) = self.pack(items) {
            let key = descriptor.id().key();
            let micros = self.prng.below(LATE_PUT_MICROS_MAX);
            self.schedule(micros, Operation::LatePut { key, object });
        }
    }

    fn put_late(&mut self, key: String, object: Vec<u8>) {
        self.say(|| format!("a PUT of an earlier life arrives: {key}"));
        self.orphans.insert(key.clone());
        self.store.put(key, object);
    }

    fn pack(&self, items: &[UploadItem]) -> Result<(ObjectDescriptor, Vec<u8>), Vec<Pvbn>> {
        let bytes: Vec<Rc<[u8]>> = items.iter().map(|item| self.disk.read_slot(item.slot)).collect();
        let corrupt: Vec<Pvbn> = items
            .iter()
            .zip(&bytes)
            .filter(|(item, bytes)| BlockSum::of(bytes) != item.sum)
            .map(|(item, _)| item.pvbn)
            .collect();
        if !corrupt.is_empty() {
            return Err(corrupt);
        }
        let blocks: Vec<(Pvbn, Fingerprint, &[u8])> = items
            .iter()
            .zip(&bytes)
            .map(|(item, bytes)| (item.pvbn, item.fingerprint, &bytes[..]))
            .collect();
        Ok(match self.scenario.canary {
            Some(Canary::ClearObjects) => Store::default().pack(&blocks, self.compression),
            _ => self.store.pack(&blocks, self.compression),
        })
    }

    fn fetch(
        &mut self,
        descriptor: &ObjectDescriptor,
        items: &[FetchItem],
    ) -> Result<Vec<Result<BlockSum, BlockLoss>>, StoreFailure> {
        if self.is_fault(self.scenario.faults.get_failure) || self.now < self.store.outage_until {
            return Err(self.store_failure("503 Service Unavailable"));
        }
        let (first, last) = (items[0].index, items[items.len() - 1].index);
        let range = byte_range(descriptor, usize::from(first)..usize::from(last) + 1).expect("items are in range");
        let key = descriptor.id().key();
        let stored = self.store.get(&key);
        let stored = stored.and_then(|object| object.get(range.start as usize..range.end as usize));
        let Some(stored) = stored.map(<[u8]>::to_vec) else {
            return Err(self.tell_lost(descriptor));
        };
        let reader = ObjectReader::new(descriptor, self.store.ring()).expect("the ring keeps all keys");
        let mut results = Vec::with_capacity(items.len());
        for item in items {
            let packed = &descriptor.blocks()[usize::from(item.index)];
            let (base, extent) = (range.start as usize, descriptor.extent(packed));
            let mut block = vec![0; BLOCK_BYTES];
            let text = &stored[extent.start - base..extent.end - base];
            let decoded = reader.decode_block(item.index.into(), text, &mut block);
            results.push(match decoded {
                Ok(()) => {
                    if self.scenario.canary == Some(Canary::WrongBytes) && self.prng.chance(50) {
                        block = self.contents.bytes_of(1).to_vec();
                    }
                    let sum = BlockSum::of(&block);
                    self.life.seen.insert(key.clone());
                    self.life.told_lost.remove(&packed.pvbn);
                    if !self.disk.is_writable(item.slot) {
                        let failure = self.disk_result(true, "write of a slot");
                        results.push(failure.map_err(BlockLoss::Disk).map(|()| sum));
                        continue;
                    }
                    self.disk.write_slot(item.slot, Rc::from(block));
                    self.slot_pvbns.insert(item.slot.0, packed.pvbn);
                    Ok(sum)
                }
                Err(error) => {
                    self.life.told_lost.insert(packed.pvbn);
                    self.forgotten.insert(packed.fingerprint);
                    Err(BlockLoss::Altered(error.to_string()))
                }
            });
        }
        Ok(results)
    }

    fn verify_object(&mut self, descriptor: &ObjectDescriptor) -> Result<(), StoreFailure> {
        if self.is_fault(self.scenario.faults.get_failure) || self.now < self.store.outage_until {
            return Err(self.store_failure("503 Service Unavailable"));
        }
        let key = descriptor.id().key();
        match self.store.get(&key) {
            Some(object) if object.len() == descriptor.object_bytes() => {
                self.life.seen.insert(key);
                Ok(())
            }
            _ => Err(self.tell_lost(descriptor)),
        }
    }

    /// The object is not there, or cut short.
    fn tell_lost(&mut self, descriptor: &ObjectDescriptor) -> StoreFailure {
        self.life.seen.remove(&descriptor.id().key());
        for packed in descriptor.blocks() {
            self.life.told_lost.insert(packed.pvbn);
            self.forgotten.insert(packed.fingerprint);
        }
        StoreFailure {
            retryable: false,
            reason: "404 Not Found".to_string(),
        }
    }
}
