//! The lock table against a model that knows only bytes: which owner holds which byte how, and who waits.

use super::*;
use proptest::prelude::*;

/// Bytes 0..16 are themselves; byte 16 stands for all the rest, up to the end of the world.
const LAST_BYTE: u64 = 16;
const INODES: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    Set {
        inode: u64,
        family: LockFamily,
        lock: Lock,
        wait: bool,
    },
    Unlock {
        inode: u64,
        family: LockFamily,
        owner: LockOwner,
        range: LockRange,
    },
    CloseOwner {
        inode: u64,
        family: LockFamily,
        owner: LockOwner,
    },
    CloseHandle {
        inode: u64,
        session: u64,
        handle: u64,
    },
    /// The waiter at this place among all of them.
    Cancel(usize),
    EndSession(u64),
    /// Through the bytes of the record, as over a restart.
    Reload(u64),
    /// This change is made and taken back.
    TakeBack(u64, Box<Step>),
}

fn owners() -> impl Strategy<Value = LockOwner> {
    (1u64..3, 1u64..3).prop_map(|(session, owner)| LockOwner { session, owner })
}

fn ranges() -> impl Strategy<Value = LockRange> {
    (0..=LAST_BYTE, 0..=LAST_BYTE).prop_map(|(one, other)| LockRange {
        start: one.min(other),
        end: match one.max(other) {
            LAST_BYTE => u64::MAX,
            end => end,
        },
    })
}

fn families() -> impl Strategy<Value = LockFamily> {
    prop_oneof![4 => Just(LockFamily::Posix), 1 => Just(LockFamily::Flock)]
}

fn sets() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
    let pids_and_handles = (0u32..9, 0u64..3);
    (
        0..INODES,
        families(),
        owners(),
        ranges(),
        kinds,
        pids_and_handles,
        any::<bool>(),
    )
        .prop_map(|(inode, family, owner, range, kind, (pid, handle), wait)| {
            let lock = Lock {
                owner,
                range: whole_if_flock(family, range),
                kind,
                pid,
                handle,
            };
            Step::Set {
                inode,
                family,
                lock,
                wait,
            }
        })
}

fn whole_if_flock(family: LockFamily, range: LockRange) -> LockRange {
    match family {
        LockFamily::Posix => range,
        LockFamily::Flock => LockRange::WHOLE,
    }
}

fn unlocks() -> impl Strategy<Value = Step> {
    (0..INODES, families(), owners(), ranges()).prop_map(|(inode, family, owner, range)| Step::Unlock {
        inode,
        family,
        owner,
        range: whole_if_flock(family, range),
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let plain = prop_oneof![
        8 => sets(),
        4 => unlocks(),
        1 => (0..INODES, families(), owners())
            .prop_map(|(inode, family, owner)| Step::CloseOwner { inode, family, owner }),
        1 => (0..INODES, 1u64..3, 0u64..3)
            .prop_map(|(inode, session, handle)| Step::CloseHandle { inode, session, handle }),
        1 => (0usize..8).prop_map(Step::Cancel),
    ];
    let undone = (0..INODES, plain.clone()).prop_map(|(inode, step)| Step::TakeBack(inode, Box::new(step)));
    prop_oneof![
        28 => plain,
        1 => (1u64..3).prop_map(Step::EndSession),
        1 => (0..INODES).prop_map(Step::Reload),
        2 => undone,
    ]
}

/// Who holds a byte, how, and through which open file.
type Cell = BTreeMap<LockOwner, (LockKind, u64)>;

#[derive(Clone, Debug, Default)]
struct Model {
    cells: BTreeMap<(u64, LockFamily, u64), Cell>,
    waiting: Vec<(WaiterId, u64, LockFamily, Lock)>,
}

fn bytes_of(range: LockRange) -> impl Iterator<Item = u64> {
    range.start..=range.end.min(LAST_BYTE)
}

impl Model {
    fn holders_against(&self, inode: u64, family: LockFamily, lock: &Lock) -> BTreeSet<LockOwner> {
        let cells = bytes_of(lock.range).filter_map(|byte| self.cells.get(&(inode, family, byte)));
        let holders = cells.flatten().filter(|(owner, (kind, _))| {
            **owner != lock.owner && (*kind == LockKind::Write || lock.kind == LockKind::Write)
        });
        holders.map(|(owner, _)| *owner).collect()
    }

    fn put(&mut self, inode: u64, family: LockFamily, lock: &Lock) {
        for byte in bytes_of(lock.range) {
            self.cells
                .entry((inode, family, byte))
                .or_default()
                .insert(lock.owner, (lock.kind, lock.handle));
        }
    }

    fn free(&mut self, is_freed: impl Fn(u64, LockFamily, u64, LockOwner) -> bool) {
        for ((inode, family, byte), cell) in &mut self.cells {
            cell.retain(|owner, _| !is_freed(*inode, *family, *byte, *owner));
        }
    }

    fn free_handle(&mut self, inode: u64, session: u64, handle: u64) {
        for (_, cell) in self.cells.iter_mut().filter(|((of, ..), _)| *of == inode) {
            cell.retain(|owner, (_, through)| owner.session != session || *through != handle);
        }
    }

    /// Spreads from the owner along "is blocked by", until nothing new is found.
    fn would_deadlock(&self, inode: u64, lock: &Lock) -> bool {
        let mut reached = self.holders_against(inode, LockFamily::Posix, lock);
        loop {
            let before = reached.len();
            for (_, inode, family, waiting) in &self.waiting {
                if *family == LockFamily::Posix && reached.contains(&waiting.owner) {
                    reached.append(&mut self.holders_against(*inode, *family, waiting));
                }
            }
            if reached.len() == before {
                return reached.contains(&lock.owner);
            }
        }
    }

    fn wake(&mut self) -> Vec<WaiterId> {
        let mut woken = Vec::new();
        let mut index = 0;
        while index < self.waiting.len() {
            let (id, inode, family, lock) = self.waiting[index];
            if self.holders_against(inode, family, &lock).is_empty() {
                self.put(inode, family, &lock);
                self.waiting.remove(index);
                woken.push(id);
                index = 0;
            } else {
                index += 1;
            }
        }
        woken
    }

    /// Every byte of the universe as the table has it.
    fn check(&self, table: &LockTable) {
        for inode in 0..INODES {
            for family in [LockFamily::Posix, LockFamily::Flock] {
                for byte in 0..=LAST_BYTE {
                    let expected = self.cells.get(&(inode, family, byte)).cloned().unwrap_or_default();
                    assert_eq!(
                        cell_of(table, inode, family, byte),
                        expected,
                        "inode {inode} byte {byte}"
                    );
                }
            }
        }
        let waiting: BTreeSet<WaiterId> = self.waiting.iter().map(|(id, ..)| *id).collect();
        let table_waiting = (0..INODES).flat_map(|inode| table.waiters.of_inode(inode));
        assert_eq!(table_waiting.map(|(id, _)| id).collect::<BTreeSet<_>>(), waiting);
    }
}

fn cell_of(table: &LockTable, inode: u64, family: LockFamily, byte: u64) -> Cell {
    let mut cell = Cell::new();
    for (of, lock) in table.inodes.get(&inode).into_iter().flat_map(GrantedLocks::iter) {
        if of == family && lock.range.start <= byte && byte <= lock.range.end {
            let twice = cell.insert(lock.owner, (lock.kind, lock.handle));
            assert_eq!(twice, None, "an owner holds a byte twice");
        }
    }
    cell
}

fn check_invariants(table: &LockTable) {
    let mut count = 0;
    for granted in table.inodes.values() {
        assert!(!granted.is_empty());
        count += granted.len();
        let locks: Vec<_> = granted.iter().collect();
        for (index, (family, lock)) in locks.iter().enumerate() {
            for (other_family, other) in &locks[index + 1..] {
                let together = family == other_family && (lock.conflicts(other) || granted::merges(lock, other));
                assert!(!together, "{lock:?} and {other:?}");
            }
        }
    }
    assert_eq!(count, table.granted_count());
    for inode in 0..INODES {
        for (_, waiter) in table.waiters.of_inode(inode) {
            assert!(
                table.conflict(inode, waiter.family, &waiter.lock).is_some(),
                "{waiter:?}"
            );
        }
    }
}

fn ids(woken: &[Woken]) -> Vec<WaiterId> {
    assert!(woken.iter().all(|woken| woken.result == Ok(())));
    woken.iter().map(|woken| woken.waiter).collect()
}

fn run_set(table: &mut LockTable, model: &mut Model, (inode, family, lock, wait): (u64, LockFamily, Lock, bool)) {
    let blockers = model.holders_against(inode, family, &lock);
    let answer = table.set(inode, family, lock, wait);
    if blockers.is_empty() {
        model.put(inode, family, &lock);
        let answer = answer.unwrap();
        assert_eq!(answer.outcome, Outcome::Granted);
        assert_eq!(ids(&answer.woken), model.wake());
    } else if !wait {
        let Outcome::Conflict(conflict) = answer.unwrap().outcome else {
            panic!("{lock:?} does not fit");
        };
        assert!(blockers.contains(&conflict.owner));
        assert!(conflict.conflicts(&lock));
        assert!(
            bytes_of(conflict.range).all(|byte| {
                model.cells[&(inode, family, byte)][&conflict.owner] == (conflict.kind, conflict.handle)
            })
        );
    } else if family == LockFamily::Posix && model.would_deadlock(inode, &lock) {
        assert_eq!(answer, Err(LockError::Deadlock));
    } else {
        let answer = answer.unwrap();
        let Outcome::Waiting(id) = answer.outcome else {
            panic!("{lock:?} has to wait");
        };
        model.waiting.push((id, inode, family, lock));
        if family == LockFamily::Flock {
            model.free(|of, family, _, owner| of == inode && family == LockFamily::Flock && owner == lock.owner);
        }
        assert_eq!(ids(&answer.woken), model.wake());
    }
}

fn run(table: &mut LockTable, model: &mut Model, step: Step) {
    match step {
        Step::Set {
            inode,
            family,
            lock,
            wait,
        } => run_set(table, model, (inode, family, lock, wait)),
        Step::Unlock {
            inode,
            family,
            owner,
            range,
        } => {
            let woken = table.unlock(inode, family, owner, range).unwrap();
            model.free(|of, kin, byte, whose| {
                (of, kin, whose) == (inode, family, owner) && range.start <= byte && byte <= range.end
            });
            assert_eq!(ids(&woken), model.wake());
        }
        Step::CloseOwner { inode, family, owner } => {
            let woken = table.close_owner(inode, family, owner);
            model.free(|of, kin, _, whose| (of, kin, whose) == (inode, family, owner));
            assert_eq!(ids(&woken), model.wake());
        }
        Step::CloseHandle { inode, session, handle } => {
            let held = model.cells.iter().filter(|((of, ..), _)| *of == inode);
            let through = |(owner, (_, through)): (&LockOwner, &(LockKind, u64))| {
                handle != 0 && owner.session == session && *through == handle
            };
            let has_some = held.flat_map(|(_, cell)| cell).any(through);
            assert_eq!(table.has_handle(inode, session, handle), has_some);
            let woken = table.close_handle(inode, session, handle);
            if handle != 0 {
                model.free_handle(inode, session, handle);
            }
            assert_eq!(ids(&woken), model.wake());
        }
        Step::Cancel(place) => {
            if let Some(id) = model.waiting.get(place).map(|(id, ..)| *id) {
                assert!(table.cancel(id));
                assert!(!table.cancel(id));
                model.waiting.remove(place);
            }
        }
        Step::EndSession(session) => run_end_session(table, model, session),
        Step::Reload(inode) => match table.encode(inode) {
            Some(bytes) => {
                let before = table.inodes[&inode].clone();
                table.load(inode, &bytes).unwrap();
                assert_eq!(table.inodes[&inode], before);
            }
            None => assert!(!table.inodes.contains_key(&inode)),
        },
        Step::TakeBack(inode, step) => take_back(table, model, inode, *step),
    }
}

fn run_end_session(table: &mut LockTable, model: &mut Model, session: u64) {
    let end = table.end_session(session);
    let expected: BTreeSet<WaiterId> = model
        .waiting
        .extract_if(.., |(_, _, _, lock)| lock.owner.session == session)
        .map(|(id, ..)| id)
        .collect();
    model.free(|_, _, _, owner| owner.session == session);
    assert_eq!(end.cancelled.iter().copied().collect::<BTreeSet<_>>(), expected);
    // Inode by inode, where the model goes by age over all.
    let woken: BTreeSet<WaiterId> = ids(&end.woken).into_iter().collect();
    assert_eq!(woken, model.wake().into_iter().collect());
    assert_eq!(table.inodes_of_session(session), Vec::<u64>::new());
}

/// Makes a step on this inode and undoes it there. Steps that are not about one inode are left out.
fn take_back(table: &mut LockTable, model: &mut Model, inode: u64, mut step: Step) {
    match &mut step {
        Step::Set { inode: of, .. }
        | Step::Unlock { inode: of, .. }
        | Step::CloseOwner { inode: of, .. }
        | Step::CloseHandle { inode: of, .. } => *of = inode,
        _ => return,
    }
    let saved = table.save(inode);
    run(table, &mut model.clone(), step);
    table.restore(saved);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_the_model(steps in prop::collection::vec(steps(), 1..60)) {
        let mut table = LockTable::default();
        let mut model = Model::default();
        for step in steps {
            run(&mut table, &mut model, step);
            model.check(&table);
            check_invariants(&table);
        }
    }

    #[test]
    fn a_damaged_record_is_refused_or_read_as_what_it_says(
        damage in prop::collection::vec((0usize..143, any::<u8>()), 0..4),
    ) {
        let mut table = LockTable::default();
        for (of, start) in [(1, 0), (2, 20), (1, 40)] {
            outcome(&mut table, 1, write_lock(of, start, start + 9), false).unwrap();
        }
        let mut bytes = table.encode(1).unwrap();
        for (place, byte) in damage {
            bytes[place] = byte;
        }
        if table.load(1, &bytes).is_ok() {
            // Order apart, there is one way to write a set of locks.
            let again = table.encode(1).unwrap();
            let sorted = |bytes: &[u8]| {
                let mut locks: Vec<Vec<u8>> = bytes[5..].chunks(46).map(<[u8]>::to_vec).collect();
                locks.sort();
                locks
            };
            prop_assert_eq!(sorted(&again), sorted(&bytes));
        }
        check_invariants(&table);
    }
}

fn owner(owner: u64) -> LockOwner {
    LockOwner { session: 1, owner }
}

fn write_lock(of: u64, start: u64, end: u64) -> Lock {
    Lock {
        owner: owner(of),
        range: LockRange { start, end },
        kind: LockKind::Write,
        pid: of as u32,
        handle: 0,
    }
}

fn outcome(table: &mut LockTable, inode: u64, lock: Lock, wait: bool) -> Result<Outcome, LockError> {
    table
        .set(inode, LockFamily::Posix, lock, wait)
        .map(|answer| answer.outcome)
}

#[test]
fn a_circle_over_three_inodes_is_refused_where_it_closes() {
    let mut table = LockTable::default();
    for of in 1..=3 {
        assert_eq!(
            outcome(&mut table, of, write_lock(of, 0, 9), false),
            Ok(Outcome::Granted)
        );
    }
    assert!(matches!(
        outcome(&mut table, 2, write_lock(1, 5, 5), true),
        Ok(Outcome::Waiting(_))
    ));
    assert!(matches!(
        outcome(&mut table, 3, write_lock(2, 5, 5), true),
        Ok(Outcome::Waiting(_))
    ));
    assert_eq!(
        outcome(&mut table, 1, write_lock(3, 5, 5), true),
        Err(LockError::Deadlock)
    );
    assert_eq!(table.waiting_count(), 2);
}

#[test]
fn waiters_are_let_in_in_the_order_of_their_arrival() {
    let mut table = LockTable::default();
    outcome(&mut table, 1, write_lock(1, 0, 9), false).unwrap();
    let mut waiting = Vec::new();
    for of in [4, 2, 3] {
        match outcome(&mut table, 1, write_lock(of, 0, 9), true) {
            Ok(Outcome::Waiting(id)) => waiting.push(id),
            other => panic!("{other:?}"),
        }
    }
    for (place, of) in [1, 4, 2].into_iter().enumerate() {
        let woken = table.unlock(1, LockFamily::Posix, owner(of), LockRange::WHOLE).unwrap();
        assert_eq!(ids(&woken), [waiting[place]]);
    }
}

#[test]
fn too_many_locks_are_refused_and_nothing_changes() {
    let limits = LockLimits {
        per_inode_max: 3,
        granted_max: 4,
        waiting_max: 1,
    };
    let mut table = LockTable::new(limits);
    for place in 0..3 {
        outcome(&mut table, 1, write_lock(1, place * 10, place * 10 + 5), false).unwrap();
    }
    let before = table.encode(1);
    assert_eq!(
        outcome(&mut table, 1, write_lock(1, 50, 55), false),
        Err(LockError::TooMany)
    );
    // Freeing a middle makes two of one.
    let middle = LockRange { start: 2, end: 3 };
    assert_eq!(
        table.unlock(1, LockFamily::Posix, owner(1), middle),
        Err(LockError::TooMany)
    );
    assert_eq!(table.encode(1), before);
    // What does not add to the count is free to go on.
    assert_eq!(
        outcome(&mut table, 1, write_lock(1, 0, 25), false),
        Ok(Outcome::Granted)
    );
    for inode in 2..5 {
        outcome(&mut table, inode, write_lock(1, 0, 5), false).unwrap();
    }
    assert_eq!(
        outcome(&mut table, 5, write_lock(1, 0, 5), false),
        Err(LockError::TooMany)
    );
    assert!(matches!(
        outcome(&mut table, 1, write_lock(2, 0, 5), true),
        Ok(Outcome::Waiting(_))
    ));
    assert_eq!(
        outcome(&mut table, 1, write_lock(3, 0, 5), true),
        Err(LockError::TooMany)
    );
}

#[test]
fn a_record_with_conflicting_locks_is_refused() {
    let mut table = LockTable::default();
    outcome(&mut table, 1, write_lock(1, 0, 9), false).unwrap();
    outcome(&mut table, 1, write_lock(2, 20, 29), false).unwrap();
    let good = table.encode(1).unwrap();
    let start_of_second = 5 + 46 + 18;
    let mut bad = good.clone();
    bad[start_of_second] = 9;
    assert!(matches!(table.load(1, &bad), Err(DecodeError::Invalid { .. })));
    for cut in 0..good.len() {
        assert!(table.load(1, &good[..cut]).is_err(), "{cut} bytes");
    }
    assert_eq!(table.encode(1).unwrap(), good, "a refused record changes nothing");
}

#[test]
fn an_empty_range_is_refused() {
    let mut table = LockTable::default();
    assert_eq!(
        outcome(&mut table, 1, write_lock(1, 5, 4), false),
        Err(LockError::EmptyRange)
    );
    let range = LockRange { start: 5, end: 4 };
    assert_eq!(
        table.unlock(1, LockFamily::Posix, owner(1), range),
        Err(LockError::EmptyRange)
    );
}
