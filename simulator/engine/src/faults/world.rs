//! The world around the core: virtual time, the events to come, and one life of the gateway after another.
//!
//! An operation takes effect when it completes, at a drawn time; completions of operations that are under way together
//! come in any order. Everything follows from the seed: there is no other source of chance.

use crate::faults::bucket::Bucket;
use crate::faults::clients::Clients;
use crate::faults::contents::Contents;
use crate::faults::disk::Disk;
use crate::faults::former::Superseded;
use crate::faults::index::{FingerprintIndex, RunFiles};
use crate::faults::metadata::Metadata;
use crate::faults::model::Model;
use crate::faults::operation::Operation;
use crate::faults::request::Request;
use crate::faults::reuse::Reuse;
use crate::faults::scenario::{Canary, Scenario, draw_config};
use crate::faults::service::Service;
use crate::faults::store::Store;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tombolo_base::{Fingerprint, FlushMode, Instant, ObjectDescriptor, Prng, Pvbn};
use tombolo_cloud_driver::object::Compression;
use tombolo_core::local_metadata::Table;
use tombolo_core::recovery::{Parts, PublishedPoint, RecoveryError, load_superblock, recover};
use tombolo_core::{Command, Core, Event, Superblock, Token, allocated_bytes};

/// Ticks at one instant beyond which the core is said to spin.
const TICKS_AT_ONE_INSTANT_MAX: u64 = 20;

/// Of the seeds, those whose store is not encrypted.
const CLEAR_STORE_PERMILLE: u64 = 125;

/// What happened to the gateway between two starts, and what it may therefore say.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub events: u64,
    pub disk_faults: u64,
    pub metadata_faults: u64,
    pub store_faults: u64,
    /// How often changes had to wait for a checkpoint or for room on the disk.
    pub room_waits: u64,
    /// A journal write or a sync has failed: the core has stopped.
    pub has_failed: bool,
    /// A sync of a checkpoint has failed: the world lets none succeed any more.
    pub checkpoint_sync_has_failed: bool,
    /// Up to where the core has been told that all is on stable storage.
    pub synced: u64,
    /// What recovery found to be in no checkpoint.
    pub first_extents: u64,
    pub first_records: u64,
    /// Fingerprints known to be in the cloud: none is uploaded again.
    pub confirmed: BTreeSet<Fingerprint>,
    pub confirmed_pvbns: BTreeSet<Pvbn>,
    /// The object of each.
    pub keys: BTreeMap<Pvbn, String>,
    /// Objects that this life has put, read or asked for.
    pub seen: BTreeSet<String>,
    /// Blocks that the core knows to be lost.
    pub told_lost: BTreeSet<Pvbn>,
}

pub struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now: u64,
    pub(crate) prng: Prng,
    pub(crate) core: Core,
    pub(crate) disk: Disk,
    pub(crate) metadata: Metadata,
    pub(crate) files: RunFiles,
    pub(crate) index: FingerprintIndex,
    pub(crate) store: Store,
    pub(crate) bucket: Bucket,
    pub(crate) model: Model,
    pub(crate) clients: Clients,
    pub(crate) service: Service,
    pub(crate) contents: Contents,
    pub(crate) requests: BTreeMap<Token, Request>,
    pub(crate) life: Life,
    pub(crate) lives: u64,
    /// The PVBN that each slot was last given to, and blocks whose slot rotted while it may have been the only copy.
    pub(crate) slot_pvbns: BTreeMap<u32, Pvbn>,
    pub(crate) rotten: BTreeSet<Pvbn>,
    /// Blocks whose slot could once not be read to be hashed.
    pub(crate) unread: BTreeSet<Pvbn>,
    /// Contents of blocks that were once lost, or that the index had no room for: they are uploaded again.
    pub(crate) forgotten: BTreeSet<Fingerprint>,
    /// Objects whose confirmation a crash lost, by key.
    pub(crate) orphans: BTreeSet<String>,
    /// Objects that another gateway may have put, which gives out PVBNs of its own.
    pub(crate) strange: BTreeSet<String>,
    pub(crate) compression: Compression,
    pub(crate) reuse: Reuse,
    /// When each run of blocks was written, by its first PVBN.
    pub(crate) written_at: BTreeMap<Pvbn, u64>,
    /// Beyond every PVBN that was ever given out.
    pub(crate) pvbns_end: u64,
    /// The disk has no room before this moment, but for the segment that was made ahead.
    pub(crate) full_until: u64,
    pub(crate) has_spare_segment: bool,
    /// Faults are over; what remains must end well.
    pub(crate) is_calm: bool,
    pub(crate) restart_wanted: bool,
    /// The gateway that this one has taken the bucket over from, if it is alive.
    pub(crate) former: Option<Box<World>>,
    /// This one is such a gateway.
    pub(crate) superseded: Option<Superseded>,
    /// How far the machine's clock is from the world's.
    pub(crate) wall_offset_micros: i64,
    /// Until then every checkpoint fails.
    pub(crate) checkpoint_outage_until: u64,
    commands: VecDeque<Command>,
    is_carrying_out: bool,
    operations: BTreeMap<(u64, u64), Operation>,
    sequence: u64,
    pub(crate) crash_after_events: Option<u64>,
    crashes_left: u64,
    ticks_at: (u64, u64),
    digest: DefaultHasher,
    pub(crate) trace: bool,
}

impl World {
    pub fn new(seed: u64, scenario: Scenario, trace: bool) -> Self {
        let mut world = Self::on_machine(seed, scenario, trace);
        world.begin_life();
        world.schedule_disasters();
        world
    }

    /// With a gateway that has not begun.
    fn on_machine(seed: u64, scenario: Scenario, trace: bool) -> Self {
        let mut prng = Prng::new(seed ^ 0x5eed_0001);
        let clients = Clients::new(Prng::new(seed ^ 0xc11e_0002), &scenario);
        let service = Service::new(Prng::new(seed ^ 0xf11e_0003), &scenario);
        let identity = prng.next_u64();
        let slot_count = scenario.config.slot_count;
        let mut disk = Disk::new(identity, slot_count);
        disk.set_allocated_bytes(allocated_bytes(scenario.config.segment_bytes));
        let (metadata, files) = (
            Metadata::first(&Superblock::first(identity, slot_count)),
            RunFiles::default(),
        );
        let (core, _) = match recover(Instant(0), parts(&scenario, 0, 0, None), &metadata, &disk) {
            Ok(recovered) => recovered,
            Err(error) => panic!("an empty state is refused: {error}"),
        };
        disk.note_pvbn(core.next_pvbn());
        disk.sync_all();
        let index = FingerprintIndex::open(&files, None, scenario.config.fingerprints_max);
        let crashes_left = scenario.crash_count;
        let store = match prng.chance(CLEAR_STORE_PERMILLE) {
            true => Store::default(),
            false => Store::encrypted(&mut prng),
        };
        Self {
            scenario,
            now: 0,
            prng,
            core,
            disk,
            metadata,
            files,
            index,
            store,
            bucket: Bucket::new(identity),
            model: Model::default(),
            clients,
            service,
            contents: Contents::default(),
            requests: BTreeMap::new(),
            life: Life::default(),
            lives: 1,
            slot_pvbns: BTreeMap::new(),
            rotten: BTreeSet::new(),
            unread: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            orphans: BTreeSet::new(),
            strange: BTreeSet::new(),
            compression: Compression::Zstd { level: 1 },
            reuse: Reuse::default(),
            written_at: BTreeMap::new(),
            pvbns_end: 0,
            full_until: 0,
            has_spare_segment: true,
            is_calm: false,
            restart_wanted: false,
            former: None,
            superseded: None,
            wall_offset_micros: 0,
            checkpoint_outage_until: 0,
            commands: VecDeque::new(),
            is_carrying_out: false,
            operations: BTreeMap::new(),
            sequence: 0,
            crash_after_events: None,
            crashes_left,
            ticks_at: (0, 0),
            digest: DefaultHasher::new(),
            trace,
        }
    }

    /// Another machine in the same world: what outlives machines is its, and all else goes with the one before.
    pub(crate) fn move_to_another_machine(&mut self) -> Self {
        let (seed, scenario) = (self.prng.next_u64(), self.scenario.clone());
        let mut former = std::mem::replace(self, Self::on_machine(seed, scenario, self.trace));
        std::mem::swap(&mut self.store, &mut former.store);
        std::mem::swap(&mut self.digest, &mut former.digest);
        std::mem::swap(&mut self.bucket, &mut former.bucket);
        former.bucket = self.bucket.left_behind();
        self.now = former.now;
        self.model = former.model.clone();
        self.clients = former.clients.clone();
        self.contents = former.contents.clone();
        self.lives = former.lives;
        self.rotten = former.rotten.clone();
        self.unread = former.unread.clone();
        self.forgotten = former.forgotten.clone();
        self.orphans = former.orphans.clone();
        self.strange = former.strange.clone();
        self.compression = former.compression;
        self.pvbns_end = former.pvbns_end;
        self.sequence = former.sequence;
        self.crashes_left = former.crashes_left;
        former.crash_after_events = None;
        former
    }

    /// What a recovery begins with.
    pub(crate) fn parts(&self) -> Parts {
        let published = self.bucket.published();
        parts(&self.scenario, self.now, self.wall_offset_micros, published)
    }

    /// The positions of roots that were put, and have not arrived.
    pub(crate) fn roots_to_arrive(&self) -> BTreeSet<u64> {
        let operations = self.operations.values();
        let lsns = operations.filter_map(|operation| match operation {
            Operation::LateRoot(put) => Some(put.known.root.lsn),
            _ => None,
        });
        lsns.collect()
    }

    pub(crate) fn take_operations(&mut self) -> BTreeMap<(u64, u64), Operation> {
        std::mem::take(&mut self.operations)
    }

    pub(crate) fn put_back(&mut self, (at, _): (u64, u64), operation: Operation) {
        self.sequence += 1;
        self.operations.insert((at, self.sequence), operation);
    }

    pub(crate) fn note_digest_of(&mut self, former: &Self) {
        former.digest().hash(&mut self.digest);
    }

    /// Adds an operation that completes after `micros`.
    pub(crate) fn schedule(&mut self, micros: u64, operation: Operation) {
        self.sequence += 1;
        self.operations.insert((self.now + micros, self.sequence), operation);
    }

    pub(crate) fn deliver_in(&mut self, micros: u64, event: Event) {
        self.schedule(micros, Operation::Deliver(event));
    }

    /// A write whose client has gone may still be under way.
    pub(crate) fn is_writing(&self) -> bool {
        let mut operations = self.operations.values();
        operations.any(|operation| matches!(operation, Operation::WriteSlots { .. }))
            || self.core.snapshot().writes_waiting > 0
    }

    /// Takes the next thing that happens, here or on the machine before. False: nothing ever will.
    pub fn advance(&mut self) -> bool {
        if self.former_is_next(self.next_at().unwrap_or(u64::MAX)) {
            self.advance_former();
            return true;
        }
        self.advance_alone()
    }

    /// When something happens here.
    pub(crate) fn next_at(&self) -> Option<u64> {
        if self.restart_wanted || self.crash_after_events == Some(0) {
            return Some(self.now);
        }
        let operation_at = self.operations.first_key_value().map(|((at, _), _)| *at);
        let deadline = self.core.next_deadline().map(|at| at.0.max(self.now));
        [operation_at, deadline].into_iter().flatten().min()
    }

    pub(crate) fn advance_alone(&mut self) -> bool {
        if self.restart_wanted || self.crash_after_events == Some(0) {
            self.crash_after_events = None;
            if self.may_be_taken_over() && self.prng.chance(self.scenario.take_over_permille) {
                self.be_taken_over();
                return true;
            }
            let is_power_loss = !self.restart_wanted && self.prng.chance(self.scenario.power_loss_permille);
            self.crash(is_power_loss);
            return true;
        }
        let operation_at = self.operations.first_key_value().map(|((at, _), _)| *at);
        let deadline = self.core.next_deadline().map(|at| at.0.max(self.now));
        match (operation_at, deadline) {
            (None, None) => return false,
            (Some(at), Some(deadline)) if at <= deadline => self.complete_next(),
            (Some(_), None) => self.complete_next(),
            (_, Some(deadline)) => self.tick(deadline),
        }
        true
    }

    fn complete_next(&mut self) {
        if let Some(((at, _), operation)) = self.operations.pop_first() {
            self.now = at;
            self.complete(operation);
        }
    }

    fn tick(&mut self, deadline: u64) {
        self.now = deadline;
        self.ticks_at = match self.ticks_at {
            (at, count) if at == deadline => (at, count + 1),
            _ => (deadline, 1),
        };
        assert!(
            self.ticks_at.1 <= TICKS_AT_ONE_INSTANT_MAX,
            "busy loop: the core wants tick after tick at {deadline}: {:?}",
            self.core.snapshot()
        );
        self.step(Event::Tick);
    }

    /// Lets the core take an event in, and carries out what it asks for.
    pub(crate) fn step(&mut self, event: Event) {
        self.note("event", &event);
        let mut commands = Vec::new();
        self.core.step(Instant(self.now), event, &mut commands);
        self.core.check_invariants();
        self.check_bounds();
        self.life.events += 1;
        if let Some(left) = &mut self.crash_after_events {
            *left = left.saturating_sub(1);
        }
        self.commands.extend(commands);
        // An answer may make a client ask again at once; its commands come after those that are waiting.
        if self.is_carrying_out {
            return;
        }
        self.is_carrying_out = true;
        while let Some(command) = self.commands.pop_front() {
            self.note_command(&command);
            self.carry_out(command);
        }
        self.is_carrying_out = false;
        self.check_age();
        self.check_unpublished_age();
    }

    fn note(&mut self, what: &str, event: &Event) {
        (self.now, std::mem::discriminant(event)).hash(&mut self.digest);
        if self.trace {
            println!("{:>12} {what} {event:?}", self.now);
        }
    }

    fn note_command(&mut self, command: &Command) {
        (std::mem::discriminant(command)).hash(&mut self.digest);
        match command {
            Command::WriteJournal(write) => {
                write.bytes.hash(&mut self.digest);
                if self.trace {
                    let head = usize::from(write.offset == 0) * tombolo_core::record::SEGMENT_HEADER_BYTES;
                    let batch = tombolo_core::record::Batch::decode(&write.bytes[head..], self.journal_identity(write));
                    println!(
                        "{:>12}   journal segment {} offset {} LSN {}..{} {:?}",
                        self.now, write.segment, write.offset, write.lsn.0, write.end.0, batch
                    );
                }
            }
            Command::Answer { token, result } => {
                (token, result.is_ok()).hash(&mut self.digest);
                if self.trace {
                    println!("{:>12}   answer {token:?} {result:?}", self.now);
                }
            }
            Command::Checkpoint { frozen, .. } => {
                frozen.superblock.lsn.hash(&mut self.digest);
                if self.trace {
                    println!("{:>12}   checkpoint {:?}", self.now, frozen.superblock);
                }
            }
            other => {
                if self.trace {
                    println!("{:>12}   command {other:?}", self.now);
                }
            }
        }
    }

    /// A thread has come back, in one of several ways.
    pub(crate) fn note_turn(&mut self, thread: usize, how: u64) {
        (self.now, thread, how).hash(&mut self.digest);
    }

    /// The identity stands in the batch's header, at offset 24.
    pub(crate) fn journal_identity(&self, write: &tombolo_core::JournalWrite) -> u64 {
        let head = usize::from(write.offset == 0) * tombolo_core::record::SEGMENT_HEADER_BYTES;
        let mut identity = [0; 8];
        identity.copy_from_slice(&write.bytes[head + 24..head + 32]);
        u64::from_le_bytes(identity)
    }

    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now, text());
        }
    }

    fn begin_life(&mut self) {
        self.crash_after_events = None;
        if self.scenario.config.recovery_point_ms.is_none() {
            self.bucket.points_are_off();
        }
        if self.crashes_left > 0 && !self.is_calm {
            self.crashes_left -= 1;
            // Now and then almost at once: in the middle of what follows a recovery.
            let bound = if self.prng.chance(150) {
                12
            } else {
                self.scenario.events_per_life
            };
            self.crash_after_events = Some(1 + self.prng.below(bound));
        }
        self.make_segment(self.core.journal_mark().segment, false);
        for client in 0..self.scenario.client_count {
            for _ in 0..self.scenario.requests_per_client {
                let think = self.scenario.delays.client_think;
                let micros = self.scenario.delays.of(think, &mut self.prng);
                self.schedule(micros, Operation::ClientWakes(client));
            }
        }
        self.begin_service();
        self.schedule_loading();
    }

    /// What has just become durable is the best moment for a crash: the next events build on it.
    pub(crate) fn perhaps_crash_soon(&mut self) {
        if self.crash_after_events.is_some() && self.prng.chance(40) {
            self.crash_after_events = Some(self.prng.below(30));
        }
    }

    /// The gateway dies and starts again.
    pub(crate) fn crash(&mut self, is_power_loss: bool) {
        self.say(|| format!("crash, power loss: {is_power_loss}"));
        self.end_service();
        let mut remaining = BTreeMap::new();
        for (key, operation) in self.take_operations() {
            match operation.is_of_the_world() {
                true => drop(remaining.insert(key, operation)),
                false => self.interrupt(operation),
            }
        }
        self.operations.append(&mut remaining);
        self.perhaps_change_settings();
        let lost_power = is_power_loss;
        self.lose(is_power_loss);
        if self.prng.chance(self.scenario.disk_loss_permille) && !self.is_calm && self.bucket.roots() > 0 {
            self.lose_disk();
        } else if self.prng.chance(self.scenario.metadata_loss_permille) && self.bucket.goes_on_in_journal() {
            // That is not gone on from before the store has answered.
            self.bucket.begin_life(true);
            self.lose_metadata();
        } else {
            let may_lose = !self.is_calm;
            if may_lose && self.prng.chance(self.scenario.journal_loss_permille) {
                // What is left is not gone on from before the store has answered.
                self.bucket.begin_life(true);
                self.lose_journal();
            } else {
                let answers = self.now >= self.store.outage_until && self.prng.chance(800);
                self.bucket.begin_life(answers);
                if may_lose && self.prng.chance(self.scenario.cache_loss_permille) {
                    self.lose_dirty_cache();
                }
            }
        }
        self.start_again(lost_power);
    }

    /// Another machine takes the bucket over, and this one does not die of it.
    fn be_taken_over(&mut self) {
        self.leave_alive();
        self.perhaps_change_settings();
        self.lose_disk();
        self.start_again(false);
    }

    fn may_be_taken_over(&self) -> bool {
        let is_well = !self.restart_wanted && !self.life.has_failed && !self.life.checkpoint_sync_has_failed;
        is_well && !self.is_calm && self.bucket.roots() > 0 && self.may_be_left_alive()
    }

    fn start_again(&mut self, mut lost_power: bool) {
        // A start whose first sync fails is refused; the next one finds nothing to sync and what the medium holds.
        while self.is_fault(self.scenario.faults.sync_failure) {
            self.say(|| "the sync before recovery fails".to_string());
            let upto = self.disk.order();
            self.disk.fail_sync(upto, &mut self.prng);
            self.life.has_failed = true;
        }
        // Died again before recovery had made its state durable.
        while !self.is_calm && self.prng.chance(150) {
            self.say(|| "power loss during recovery".to_string());
            let (_, report) = self.recover();
            self.say(|| format!("forgotten: {report:?}"));
            self.lose(true);
            lost_power = true;
        }
        // What a failed sync dropped is as lost as by a power loss.
        let may_lose_unflushed = lost_power || self.life.has_failed || self.life.checkpoint_sync_has_failed;
        let (core, report) = self.recover();
        let recovered = load_superblock(&self.metadata)
            .expect("metadata is whole")
            .map_or(0, |superblock| superblock.lsn.0)
            + core.snapshot().journal_bytes;
        self.say(|| format!("recovered up to LSN {recovered}: {report:?}"));
        if !may_lose_unflushed {
            self.probe_recovery();
            self.probe_older_cache();
        }
        self.model.on_recovered(recovered, may_lose_unflushed);
        self.service_recovered(may_lose_unflushed);
        self.disk.check_end(recovered);
        self.check_recovered(&mut self.recover_probe());
        self.core = core;
        self.reuse = Reuse::after(recovered);
        self.disk.note_pvbn(self.core.next_pvbn());
        self.disk.sync_all();
        self.disk.note(self.core.journal_mark());
        let memtable_max = self.scenario.config.fingerprints_max;
        self.index = FingerprintIndex::open(&self.files, self.metadata.manifest.as_deref(), memtable_max);
        for descriptor in &report.objects {
            self.index.recover(&self.files, descriptor);
        }
        let snapshot = self.core.snapshot();
        self.life = Life {
            synced: recovered,
            first_extents: snapshot.overlay_extents,
            first_records: snapshot.replay_records,
            ..Life::default()
        };
        self.know_confirmed(&report.objects);
        self.note_orphans();
        self.check_index();
        self.requests.clear();
        self.restart_wanted = false;
        self.lives += 1;
        self.ticks_at = (0, 0);
        self.begin_life();
    }

    /// All but the number of slots, and the cap, below which the backlog may not be for a while.
    fn perhaps_change_settings(&mut self) {
        if !self.is_calm && self.prng.chance(self.scenario.settings_change_permille) {
            let (slots, dirty) = (self.scenario.config.slot_count, self.scenario.config.dirty_blocks_max);
            let points = self.scenario.config.recovery_point_ms;
            self.scenario.config = draw_config(&mut self.prng, slots, dirty);
            if self.scenario.share_flush == FlushMode::Bucket {
                self.scenario.config.recovery_point_ms = self.scenario.config.recovery_point_ms.or(points);
            }
            let segment_bytes = self.scenario.config.segment_bytes;
            self.disk.set_allocated_bytes(allocated_bytes(segment_bytes));
            self.compression = match self.prng.below(3) {
                0 => Compression::Off,
                level => Compression::Zstd { level: level as i32 },
            };
            if self.store.is_encrypted() && self.prng.chance(300) {
                self.store.rotate_key(&mut self.prng);
            }
        }
    }

    fn lose(&mut self, is_power_loss: bool) {
        if is_power_loss {
            self.disk.power_loss(&mut self.prng);
            self.files.power_loss(&mut self.prng);
        } else {
            self.disk.forget_unlinked();
        }
    }

    /// Builds the next core and does what its report asks for, but does not sync.
    fn recover(&mut self) -> (Core, tombolo_core::recovery::Report) {
        self.disk.sync_all();
        if self.scenario.canary != Some(Canary::TrustMemory) {
            self.disk.drop_pages();
        }
        let again = |world: &Self| recover(Instant(world.now), world.parts(), &world.metadata, &world.disk);
        let (core, report) = match again(self) {
            Ok(recovered) => recovered,
            // A bad slot among those of the last sync looks like an older copy when its note is gone too, and is accepted.
            Err(RecoveryError::CacheOlder { durable, .. }) if self.disk.is_rotten() => {
                self.say(|| "a rotten slot is taken for an older cache file".to_string());
                self.disk.raise_mark(durable);
                again(self).unwrap_or_else(|error| panic!("recovery refuses what was accepted: {error}"))
            }
            Err(error) => panic!("recovery refuses: {error}"),
        };
        if let Some((segment, offset)) = report.cut {
            self.disk.zero_segment(segment, offset);
        }
        for segment in &report.obsolete_segments {
            self.disk.unlink(*segment);
        }
        self.disk.make_cache();
        (core, report)
    }

    /// What [`Self::recover`] has just built, once more.
    fn recover_probe(&self) -> Core {
        let parts = self.parts();
        match recover(Instant(self.now), parts, &self.metadata, &self.disk) {
            Ok((core, _)) => core,
            Err(error) => panic!("a second recovery refuses: {error}"),
        }
    }

    fn know_confirmed(&mut self, recent: &[Arc<ObjectDescriptor>]) {
        let stored: Vec<ObjectDescriptor> = self
            .metadata
            .whole()
            .table(Table::Objects)
            .map(|(_, bytes)| ObjectDescriptor::decode(bytes).expect("metadata is whole"))
            .collect();
        for descriptor in stored.iter().chain(recent.iter().map(|descriptor| &**descriptor)) {
            for packed in descriptor.blocks() {
                self.life.confirmed.insert(packed.fingerprint);
                self.life.confirmed_pvbns.insert(packed.pvbn);
                self.life.keys.insert(packed.pvbn, descriptor.id().key());
            }
        }
    }

    fn note_orphans(&mut self) {
        let confirmed: BTreeSet<&String> = self.life.keys.values().collect();
        let orphans = self.store.keys().filter(|key| !confirmed.contains(key));
        self.orphans.extend(orphans.cloned());
    }

    /// Starts again with an empty cache file, as after its loss.
    pub(crate) fn restart_with_new_cache(&mut self) {
        self.disk.lose_cache();
        self.slot_pvbns.clear();
        self.crash(false);
    }
}

/// A machine's clock is never set: it began before the simulation did.
const WALL_MICROS_AT_ZERO: u64 = 1_000_000_000_300_000;

fn parts(scenario: &Scenario, now: u64, clock_offset: i64, published: Option<PublishedPoint>) -> Parts {
    Parts {
        published,
        config: scenario.config.clone(),
        wall_micros: (WALL_MICROS_AT_ZERO + now).saturating_add_signed(clock_offset),
        policies: scenario.policies.build(scenario.config.slot_count),
    }
}
