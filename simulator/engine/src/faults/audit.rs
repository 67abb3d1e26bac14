//! What `tombolo check --store` compares, at every moment at which it might: it finds nothing but blocks that are lost.

use crate::faults::world::World;
use std::convert::Infallible;
use tombolo_core::audit::{AuditFinding, BucketAudit, audit_window};
use tombolo_core::bucket_tree::{BucketTree, JournalChanges, ReadTreeError, read_tree};
use tombolo_core::local_metadata::MetadataFault;
use tombolo_core::{Extent, Target};

const PAGES_MAX: usize = 3;

impl World {
    /// Local metadata in itself, as a checkpoint has left it, when nothing is lacking.
    pub(crate) fn check_audit(&self) {
        let metadata = self.metadata.whole();
        let mut from = Some(0);
        while let Some(first) = from {
            let mut find = |finding| match finding {
                AuditFinding::NoObject { run, .. } => self.check_lost(&run),
                other => panic!("{other:?}"),
            };
            let window = audit_window(&*metadata, first, PAGES_MAX, &mut find);
            from = window.unwrap_or_else(|error| panic!("{error}")).next;
        }
    }

    fn check_lost(&self, run: &Extent) {
        let Target::At(first) = run.target else {
            panic!("a hole has no object")
        };
        for pvbn in (0..run.count).map(|index| first.plus(index)) {
            assert!(
                self.may_be_missing(pvbn),
                "{pvbn:?} of {run:?} is in no object and in no slot"
            );
        }
    }

    /// Local metadata against what the bucket was told, however far each has come.
    pub(crate) fn check_bucket_audit(&self) {
        if self.superseded.is_some() {
            return;
        }
        let Some(root) = self.known_root() else { return };
        let moving = self.core.moving();
        if moving.is_all {
            return;
        }
        let mut journal = JournalChanges::default();
        for (part, _) in self.parts_of(&root) {
            journal.lay(part);
        }
        let mut find = |finding: AuditFinding| panic!("{finding:?}");
        let mut audit = BucketAudit::new(&self.metadata, &moving, &journal, &mut find);
        let tree = BucketTree::decode(&root.tree).expect("a tree");
        let contents = read_tree(&mut self.nodes(), &tree, &mut |part| audit.take(&part));
        let contents = contents.unwrap_or_else(|error: ReadTreeError<_, MetadataFault<Infallible>>| panic!("{error}"));
        audit.finish(Some(&contents)).unwrap_or_else(|error| panic!("{error}"));
    }
}
