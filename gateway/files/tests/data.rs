//! Contents of files, against vectors of bytes.

mod support;

use proptest::prelude::*;
use std::time::Duration;
use support::{World, in_root, node};
use tombolo_base::{BLOCK_BYTES, is_zero};
use tombolo_files::{Allocate, FILE_BYTES_MAX, FileError, OpenFlags, Place, ROOT, Seek, SetAttributes};

const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, u64, u64, u8),
    Resize(usize, u64),
    Allocate(usize, u64, u64, Allocate),
    Copy(usize, u64, usize, u64, u64),
    Read(usize, u64, u64),
    Seek(usize, u64),
}

/// Offsets and lengths: any, or at the borders of blocks.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..40_000u64,
        (0..10u64).prop_map(|block| block * BLOCK),
        (1..10u64).prop_map(|block| block * BLOCK - 1)
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![1..10_000u64, (1..5u64).prop_map(|blocks| blocks * BLOCK), 1..20u64]
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{Copy, Read, Resize, Seek, Write};
    let file = || 0usize..2;
    let mode = prop_oneof![
        Just(Allocate::Extend),
        Just(Allocate::KeepSize),
        Just(Allocate::PunchHole),
        Just(Allocate::ZeroRange),
        Just(Allocate::ZeroRangeKeepSize)
    ];
    // A quarter of all writes are zeroes, which become holes.
    let byte = prop_oneof![3 => 1..=255u8, 1 => Just(0u8)];
    prop_oneof![
        5 => (file(), offset(), length(), byte).prop_map(|(file, at, bytes, value)| Write(file, at, bytes, value)),
        3 => (file(), offset()).prop_map(|(file, size)| Resize(file, size)),
        3 => (file(), offset(), length(), mode).prop_map(|(file, at, bytes, mode)| Operation::Allocate(file, at, bytes, mode)),
        4 => (file(), offset(), file(), offset(), length())
            .prop_map(|(from, at, to, new, bytes)| Copy(from, at, to, new, bytes)),
        2 => (file(), offset(), length()).prop_map(|(file, at, bytes)| Read(file, at, bytes)),
        2 => (file(), offset()).prop_map(|(file, at)| Seek(file, at)),
    ]
}

struct Run {
    world: World,
    inodes: [u64; 2],
    contents: [Vec<u8>; 2],
}

impl Run {
    fn new() -> Self {
        let world = World::new();
        let inodes = [world.mknod(ROOT, "one"), world.mknod(ROOT, "two")];
        Self {
            world,
            inodes,
            contents: [Vec::new(), Vec::new()],
        }
    }

    fn carry_out(&mut self, operation: &Operation) {
        let caller = self.world.caller();
        let service = self.world.service.clone();
        match *operation {
            Operation::Write(file, offset, bytes, value) => {
                // Not all alike, so that bytes in the wrong place show.
                let data: Vec<u8> = (0..bytes)
                    .map(|at| if value == 0 { 0 } else { value ^ (at % 7) as u8 })
                    .collect();
                assert_eq!(self.world.write(self.inodes[file], offset, &data), Ok(data.len()));
                let end = (offset + bytes) as usize;
                let contents = &mut self.contents[file];
                contents.resize(contents.len().max(end), 0);
                contents[offset as usize..end].copy_from_slice(&data);
            }
            Operation::Resize(file, size) => {
                let set = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                service.setattr(&caller, self.inodes[file], &set).unwrap();
                self.contents[file].resize(size as usize, 0);
            }
            Operation::Allocate(file, offset, bytes, mode) => {
                let at = self.place(file, offset);
                service.fallocate(&caller, at, bytes, mode).unwrap();
                self.allocate(file, offset as usize, (offset + bytes) as usize, mode);
            }
            Operation::Copy(from, offset, to, new, bytes) => self.copy(from, offset, to, new, bytes),
            Operation::Read(file, offset, bytes) => {
                let contents = &self.contents[file];
                let from = contents.len().min(offset as usize);
                let to = contents.len().min((offset + bytes) as usize);
                let read = self.world.read(self.inodes[file], offset, bytes as usize).unwrap();
                assert!(read == contents[from..to], "{operation:?}");
            }
            Operation::Seek(file, offset) => self.seek(file, offset),
        }
    }

    fn place(&self, file: usize, offset: u64) -> Place {
        Place {
            inode: self.inodes[file],
            offset,
        }
    }

    fn allocate(&mut self, file: usize, from: usize, to: usize, mode: Allocate) {
        let contents = &mut self.contents[file];
        if matches!(mode, Allocate::Extend | Allocate::ZeroRange) {
            contents.resize(contents.len().max(to), 0);
        }
        if matches!(
            mode,
            Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize
        ) {
            let size = contents.len();
            contents[from.min(size)..to.min(size)].fill(0);
        }
    }

    fn copy(&mut self, from: usize, offset: u64, to: usize, new: u64, bytes: u64) {
        let size = self.contents[from].len() as u64;
        let count = size.saturating_sub(offset).min(bytes);
        let (source, target) = (self.place(from, offset), self.place(to, new));
        let copied = self
            .world
            .service
            .copy_range(&self.world.caller(), source, target, bytes);
        if count > 0 && from == to && offset.abs_diff(new) < count {
            assert_eq!(copied, Err(FileError::Invalid("the ranges overlap")));
            return;
        }
        assert_eq!(copied, Ok(count));
        if count > 0 {
            let data = self.contents[from][offset as usize..(offset + count) as usize].to_vec();
            let end = (new + count) as usize;
            let contents = &mut self.contents[to];
            contents.resize(contents.len().max(end), 0);
            contents[new as usize..end].copy_from_slice(&data);
        }
    }

    /// All that is skipped on the way to data is zeroes; holes are what the model has zeroes in.
    fn seek(&self, file: usize, offset: u64) {
        let contents = &self.contents[file];
        let caller = self.world.caller();
        let place = self.place(file, offset);
        let data = self.world.service.seek(&caller, place, Seek::Data);
        let hole = self.world.service.seek(&caller, place, Seek::Hole);
        if offset as usize >= contents.len() {
            assert_eq!(
                (data, hole),
                (Err(FileError::NoSuchPosition), Err(FileError::NoSuchPosition))
            );
            return;
        }
        let until = data.map_or(contents.len(), |data| data as usize);
        assert!(is_zero(&contents[offset as usize..until]));
        let hole = hole.unwrap() as usize;
        assert!(hole <= contents.len());
        if hole < contents.len() {
            let end = contents.len().min((hole / BLOCK_BYTES + 1) * BLOCK_BYTES);
            assert!(is_zero(&contents[hole..end]));
        }
    }

    fn compare(&self) {
        for (inode, contents) in self.inodes.iter().zip(&self.contents) {
            let attributes = self.world.getattr(*inode).unwrap();
            assert_eq!(attributes.size, contents.len() as u64);
            assert!(self.world.read(*inode, 0, usize::MAX).unwrap() == *contents);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn contents_are_those_of_the_model(operations in prop::collection::vec(operation(), 1..60)) {
        let mut run = Run::new();
        for operation in &operations {
            run.carry_out(operation);
            run.compare();
        }
        run.world.check();
    }
}

#[test]
fn a_late_answer_to_a_read_is_waited_for() {
    let mut run = Run::new();
    run.carry_out(&Operation::Write(0, 0, 20_000, 7));
    run.world.storage.delay_reads(Duration::from_millis(20));
    run.carry_out(&Operation::Write(0, 5_000, 5_000, 9));
    run.carry_out(&Operation::Copy(0, 100, 1, 3, 9_000));
    run.compare();
    run.world.check();
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let world = World::new();
    let inode = world.mknod(ROOT, "file");
    world.write(inode, 0, &[7; 5000]).unwrap();
    let resize = |size| {
        let set = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        world.service.setattr(&world.caller(), inode, &set).unwrap()
    };
    assert_eq!(resize(100).allocated_blocks, 1);
    resize(5000);
    let read = world.read(inode, 0, 5000).unwrap();
    assert!(read[..100] == [7; 100] && is_zero(&read[100..]));
    world.check();
}

#[test]
fn blocks_are_counted_and_zeroes_cost_nothing() {
    let world = World::new();
    let inode = world.mknod(ROOT, "file");
    let used = || {
        (
            world.getattr(inode).unwrap().allocated_blocks,
            world.service.shares()[0].used_bytes,
        )
    };
    world.write(inode, 0, &[1; 3 * BLOCK_BYTES]).unwrap();
    assert_eq!(used(), (3, 3 * BLOCK));
    world.write(inode, 0, &[2; 2 * BLOCK_BYTES]).unwrap();
    assert_eq!(used(), (3, 3 * BLOCK));
    world.write(inode, BLOCK, &[0; BLOCK_BYTES]).unwrap();
    assert_eq!(used(), (2, 2 * BLOCK));
    world.write(inode, 1 << 30, &[1; 10]).unwrap();
    assert_eq!(used(), (3, 3 * BLOCK));
    assert_eq!(world.getattr(inode).unwrap().sectors(), 24);
    world.unlink(ROOT, "file").unwrap();
    assert_eq!(world.service.shares()[0].used_bytes, 0);
    world.check();
}

#[test]
fn the_quota_is_exact() {
    let world = World::with_quota(4 * BLOCK);
    let inode = world.mknod(ROOT, "file");
    world.write(inode, 0, &[1; 3 * BLOCK_BYTES]).unwrap();
    let status = world.service.statfs(&world.caller()).unwrap();
    assert_eq!((status.blocks, status.blocks_free), (4, 1));
    assert_eq!(
        world.write(inode, 3 * BLOCK, &[1; 2 * BLOCK_BYTES]),
        Err(FileError::QuotaExceeded)
    );
    assert_eq!(world.getattr(inode).unwrap().size, 3 * BLOCK);
    world.write(inode, 2 * BLOCK, &[1; 2 * BLOCK_BYTES]).unwrap();
    world.write(inode, 0, &[2; BLOCK_BYTES]).unwrap();
    let other = world.mknod(ROOT, "other");
    let (from, to) = (
        Place { inode, offset: 0 },
        Place {
            inode: other,
            offset: 0,
        },
    );
    let copied = world.service.copy_range(&world.caller(), from, to, BLOCK);
    assert_eq!(copied, Err(FileError::QuotaExceeded));
    world.service.set_quota(support::SHARE, 0).unwrap();
    assert_eq!(world.service.copy_range(&world.caller(), from, to, BLOCK), Ok(BLOCK));
    world.check();
}

#[test]
fn the_largest_file_ends_where_it_must() {
    let world = World::new();
    let inode = world.mknod(ROOT, "file");
    assert_eq!(world.write(inode, FILE_BYTES_MAX - 1, &[1]), Ok(1));
    assert_eq!(world.write(inode, FILE_BYTES_MAX, &[1]), Err(FileError::FileTooLarge));
    assert_eq!(world.write(inode, u64::MAX, &[1]), Err(FileError::FileTooLarge));
    assert_eq!(world.read(inode, u64::MAX, 10), Ok(Vec::new()));
    assert_eq!(world.read(inode, FILE_BYTES_MAX - 2, 10), Ok(vec![0, 1]));
    let found = world
        .service
        .seek(&world.caller(), Place { inode, offset: 0 }, Seek::Data);
    assert_eq!(found, Ok(FILE_BYTES_MAX - BLOCK));
    world.check();
}

#[test]
fn an_aligned_overwrite_costs_one_get_one_map_and_one_write() {
    let world = World::new();
    let inode = world.mknod(ROOT, "file");
    world.write(inode, 0, &[1; 4 * BLOCK_BYTES]).unwrap();
    let before = world.storage.calls();
    world.write(inode, BLOCK, &[2; BLOCK_BYTES]).unwrap();
    let after = world.storage.calls();
    assert_eq!(after.gets - before.gets, 1);
    assert_eq!(after.maps - before.maps, 1);
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.scans, before.scans);
}

#[test]
fn creating_and_finding_cost_a_few_gets_and_one_commit() {
    let world = World::new();
    let directory = world.mkdir(ROOT, "directory");
    // However many there are already.
    for index in 0..20_000 {
        world.mknod(directory, &format!("name{index}"));
    }
    let before = world.storage.calls();
    world
        .service
        .create(
            &world.caller(),
            support::at(directory, "x"),
            node(0o644),
            OpenFlags::default(),
        )
        .unwrap();
    let created = world.storage.calls();
    world.lookup(directory, "x").unwrap();
    let found = world.storage.calls();
    assert_eq!((created.gets - before.gets, created.commits - before.commits), (2, 1));
    assert_eq!(found.gets - created.gets, 3);
    assert_eq!((found.scans, found.maps), (before.scans, before.maps));
}

#[test]
fn directories_have_no_contents() {
    let world = World::new();
    assert_eq!(world.read(ROOT, 0, 10), Err(FileError::IsDirectory));
    assert_eq!(world.write(ROOT, 0, &[1]), Err(FileError::IsDirectory));
    let fifo = world
        .service
        .mknod(&world.caller(), in_root("fifo"), node(0o010_644))
        .unwrap()
        .inode;
    assert_eq!(
        world.write(fifo, 0, &[1]),
        Err(FileError::Invalid("not a regular file"))
    );
    assert_eq!(world.write(99_999, 0, &[1]), Err(FileError::Stale));
}
