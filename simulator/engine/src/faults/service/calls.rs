//! What the world does for a thread that calls storage: the same as for any other client of the core.

use super::storage::{Call, Replied, Reply};
use super::{FIRST_CLIENT, HOUSE};
use crate::faults::clients::no_span;
use crate::faults::request::{Kind, Request};
use crate::faults::scenario::Canary;
use crate::faults::world::World;
use tombolo_base::{BLOCK_BYTES, VolumeId};
use tombolo_core::{Answer, MetadataChange, MetadataError, Refusal, Token};
use tombolo_file_storage::storage_error;
use tombolo_files::storage::StorageError;

/// One look at local metadata in so many, in permille, takes a while.
const SLOW_LOOKS: u64 = 60;
const LOOKS_PER_REQUEST: u64 = 10;

impl World {
    /// `None`: the answer comes later, with [`World::reply`].
    pub(super) fn begin_call(&mut self, thread: usize, call: Call) -> Option<Replied> {
        let client = FIRST_CLIENT + thread;
        if call.is_of_metadata() && self.look_fails(thread) {
            return Some(Err(StorageError::Failed("local metadata: MDB_MAP_FULL".into())));
        }
        if call.is_of_metadata()
            && let Err(error) = self.ask_store(thread)
        {
            return Some(Err(storage_error(&error.into())));
        }
        let reply = match call {
            Call::Get(key) => {
                let get = self.new_get(client, key);
                if self.service.prng.chance(SLOW_LOOKS) {
                    self.schedule_get(get);
                    return None;
                }
                Reply::Entry(self.found_by(get).pop().map(|(_, value)| value))
            }
            Call::Scan { from, end, limit } => {
                let scan = self.new_scan(client, &from, &end, limit);
                self.go_on_scanning(scan);
                return None;
            }
            Call::Counter(key) => Reply::Counter(self.core.counter(&key)),
            Call::Core(question) => Reply::Core(question(&self.core)),
            Call::StoredPage { volume, page } => Reply::Page(self.next_stored_page(volume, page)),
            Call::StoredMap(volume) => Reply::Map(self.next_stored_map(volume)),
            other => {
                self.ask_for(client, other);
                return None;
            }
        };
        Some(Ok(reply))
    }

    /// One request makes many looks, and a service that opens some hundred.
    fn look_fails(&mut self, thread: usize) -> bool {
        let rate = self.scenario.faults.metadata_failure / LOOKS_PER_REQUEST;
        rate > 0 && thread != HOUSE && self.is_fault(rate)
    }

    /// Of those that need the store; which these are is drawn.
    fn ask_store(&mut self, thread: usize) -> Result<(), MetadataError> {
        let is_asked = thread != HOUSE && !self.metadata.is_whole() && self.prng.chance(300);
        if !is_asked || self.nodes_answered() == u64::MAX {
            return Ok(());
        }
        self.note_asked(Err(MetadataError::Unanswered("503 Slow Down".into())))
    }

    fn ask_for(&mut self, client: usize, call: Call) {
        let nothing = no_span(VolumeId(0));
        match call {
            Call::Commit { mut change, links } => {
                let rest;
                (change.entries, rest) = self.maim(change.entries);
                let by = match rest {
                    Some(entries) => {
                        let holes = std::mem::take(&mut change.holes);
                        self.commit_later(client, MetadataChange { entries, holes });
                        // The first client of volumes hears of it.
                        0
                    }
                    None => client,
                };
                self.ask(by, Kind::Commit { change, links }, nothing, Vec::new());
            }
            Call::Write {
                span,
                data,
                sums,
                mut change,
            } => {
                change.entries = self.maim(change.entries).0;
                let blocks = data.chunks_exact(BLOCK_BYTES);
                let values: Vec<_> = blocks.map(|block| self.contents.know(block)).collect();
                assert_eq!(self.sums(&values), sums, "a write brings the sums of its blocks");
                self.service.edges.write(span, &values);
                let kind = Kind::Write {
                    force_unit_access: false,
                    change,
                };
                self.ask(client, kind, span, values);
            }
            Call::Read { span, is_edge } => {
                let token = self.ask(client, Kind::Read, span, Vec::new());
                if is_edge && self.scenario.canary == Some(Canary::StaleEdges) {
                    self.service.edges.watch(token);
                }
            }
            Call::Status(span) => drop(self.ask(client, Kind::Status, span, Vec::new())),
            Call::Resolve(span) => drop(self.ask(client, Kind::Resolve, span, Vec::new())),
            Call::Sync(mode) => self.ask_flush(client, mode),
            _ => unreachable!("the others are answered at once"),
        }
    }

    /// A thread's request was carried out.
    pub(crate) fn reply_with(&mut self, thread: usize, token: Token, request: &Request, answer: Answer) {
        let reply = match answer {
            Answer::Read => {
                let values = self.service.edges.perhaps_stale(token, request.span, &request.values);
                let blocks = values.iter().map(|value| self.contents.bytes_of(*value));
                Reply::Bytes(blocks.flat_map(|block| block.to_vec()).collect())
            }
            Answer::Status(runs) => Reply::Status(runs),
            Answer::Resolved(runs) => Reply::Resolved(runs),
            _ => Reply::Done,
        };
        self.reply(thread, Ok(reply));
    }

    pub(crate) fn reply_refused(&mut self, thread: usize, refusal: &Refusal) {
        self.reply(thread, Err(storage_error(refusal)));
    }

    /// What a look at entries has found.
    pub(crate) fn reply_found(&mut self, thread: usize, found: Vec<tombolo_core::StoredEntry>, is_scan: bool) {
        let reply = match is_scan {
            true => Reply::Entries(found),
            false => Reply::Entry(found.into_iter().next().map(|(_, value)| value)),
        };
        self.reply(thread, Ok(reply));
    }
}
