//! Random requests, against a model of a POSIX tree: the same answers, errors included, and at the end the same tree,
//! over restarts of the service.

mod support;

use proptest::prelude::*;
use support::{World, client};
use tombolo_files::model::{Model, Operation, ask, look};
use tombolo_files::{RenameMode, SessionKind, XattrMode};

/// A request, for inodes that are told by how lately they were made, the root first.
#[derive(Clone, Debug)]
enum Step {
    Request(Box<Operation>),
    Restart,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const XATTRS: [&str; 3] = ["user.one", "user.two", "trusted.three"];

fn step() -> impl Strategy<Value = Step> {
    use Operation::*;
    let inode = || 0u64..12;
    let name = || prop::sample::select(&NAMES[..]);
    let at = || (inode(), name());
    let session = || 0usize..2;
    let xattr = || prop::sample::select(&XATTRS[..]);
    let rename_mode = prop_oneof![
        4 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange)
    ];
    let xattr_mode = prop_oneof![Just(XattrMode::Any), Just(XattrMode::Create), Just(XattrMode::Replace)];
    let request = prop_oneof![
        6 => at().prop_map(Mkdir),
        4 => at().prop_map(Mknod),
        1 => at().prop_map(Symlink),
        4 => (inode(), at()).prop_map(|(of, at)| Link(of, at)),
        5 => at().prop_map(Unlink),
        4 => at().prop_map(Rmdir),
        12 => (at(), at(), rename_mode).prop_map(|(from, to, mode)| Rename(from, to, mode)),
        4 => (at(), session(), any::<bool>())
            .prop_map(|(at, session, exclusive)| Create { at, session, exclusive }),
        1 => (inode(), session()).prop_map(|(parent, session)| Tmpfile { parent, session }),
        3 => (inode(), session()).prop_map(|(of, by)| Open(of, by)),
        4 => (inode(), session()).prop_map(|(of, by)| Release(of, by)),
        2 => at().prop_map(Lookup),
        1 => inode().prop_map(LookupParent),
        2 => (inode(), 0u32..0o1000).prop_map(|(of, mode)| Chmod(of, mode)),
        2 => (inode(), 0u64..20_000).prop_map(|(of, size)| Resize(of, size)),
        4 => (inode(), 0u64..20_000, 1usize..6000, any::<u8>())
            .prop_map(|(inode, offset, bytes, byte)| Write { inode, offset, bytes, byte }),
        2 => (inode(), xattr(), any::<u8>(), xattr_mode)
            .prop_map(|(of, name, value, mode)| SetXattr(of, name, value, mode)),
        1 => (inode(), xattr()).prop_map(|(of, name)| RemoveXattr(of, name)),
    ];
    prop_oneof![
        60 => request.prop_map(|request| Step::Request(Box::new(request))),
        1 => Just(Step::Restart),
    ]
}

struct Run {
    world: World,
    model: Model,
    second: u64,
}

impl Run {
    fn new() -> Self {
        let world = World::new();
        let second = world.attach(b"second", SessionKind::Client);
        let root = world.service.share_named(support::SHARE).unwrap().root;
        Self {
            world,
            model: Model::new(root),
            second,
        }
    }

    /// The latest inodes are the interesting ones, and the root.
    fn inode(&self, index: u64) -> u64 {
        let mut inodes = self.model.inodes();
        let found = match index {
            0 => inodes.next(),
            _ => inodes.nth_back(index as usize - 1),
        };
        found.or_else(|| self.model.inodes().next()).unwrap()
    }

    fn restart(&mut self) {
        let storage = self.world.storage.clone();
        let (session, second) = (self.world.session, self.second);
        self.world = World::again(storage);
        self.second = self.world.attach(b"second", SessionKind::Client);
        assert_eq!((self.world.session, self.second), (session, second));
        self.model.restart();
    }

    fn carry_out(&mut self, step: &Step) {
        let Step::Request(request) = step else {
            return self.restart();
        };
        let request = request.on(|index| self.inode(index));
        if matches!(request, Operation::LookupParent(of) if !self.model.has_parent(of)) {
            return;
        }
        let callers = [self.world.session, self.second].map(|session| self.world.caller_of(session));
        let answer = ask(&self.world.service, &callers, &request);
        let made = answer.as_ref().ok().and_then(|given| given.made());
        assert_eq!(answer, self.model.carry_out(&request, made), "{request:?}");
    }

    fn compare_all(&self) {
        let found = look(&self.world.service, &self.world.caller(), self.model.inodes());
        assert_eq!(found, Ok(self.model.shown()));
        assert_eq!(self.inodes(), self.model.live() as u64);
    }

    fn inodes(&self) -> u64 {
        self.world.service.share_named(support::SHARE).unwrap().inodes
    }

    /// When both sessions end, nothing without a name stays.
    fn end(mut self) {
        self.restart();
        for name in [&b"first"[..], b"second"] {
            let start = self.world.service.attach(&client(name, SessionKind::Client)).unwrap();
            self.world.service.end_session(start.session).unwrap();
        }
        assert_eq!(self.inodes(), self.model.named() as u64);
        self.world.check();
        let progress = &mut |_| ();
        self.world.service.delete_share(support::SHARE, progress).unwrap();
        assert_eq!(self.world.storage.keys(), vec![b"G".to_vec()]);
        assert_eq!(self.world.storage.mapped_blocks(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn answers_and_trees_are_those_of_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.carry_out(step);
        }
        run.compare_all();
        run.world.check();
        run.end();
    }
}
