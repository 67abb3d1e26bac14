//! The root, the journal and the tree in the bucket: the objects, and what they hold; and the local copy of the root.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::bucket_journal::Part;
use tombolo_core::bucket_tree::BucketTree;
use tombolo_core::publisher::{Publisher, RootWriter};
use tombolo_core::root::Root;
use tombolo_metadata_tree::{
    Entries, RecordNode, Runs, UsageTable, decode_children, decode_records, encode_children, encode_records,
};

fuzz_target!(|bytes: &[u8]| {
    tombolo_cloud_driver::metadata_object::fuzz_decode(bytes);
    tombolo_cloud_driver::node_object::fuzz_open(bytes);
    let _ = Part::decode(bytes);
    let writer = RootWriter {
        identity: 1,
        name: String::new(),
        lease_ms: 1,
        roots_kept: 1,
    };
    let _ = Publisher::decode(bytes, writer);
    if let Ok(tree) = BucketTree::decode(bytes) {
        assert_eq!(tree.encode(), bytes, "one form for each tree");
    }
    for node in [RecordNode::Leaf, RecordNode::Segment] {
        if let Ok(records) = decode_records::<Runs>(node, bytes) {
            assert_eq!(encode_records::<Runs>(node, &records), bytes, "one form for each node");
        }
        if let Ok(records) = decode_records::<Entries>(node, bytes) {
            assert_eq!(encode_records::<Entries>(node, &records), bytes, "one form for each node");
        }
    }
    if let Ok(children) = decode_children::<Entries>(1, &Vec::new(), bytes) {
        assert_eq!(encode_children::<Entries>(1, &children), bytes, "one form for each node");
    }
    if let Ok((root, usage)) = UsageTable::decode(bytes) {
        assert_eq!(usage.encode(root), bytes, "one form for each usage table");
    }
    if let Ok(root) = Root::decode(bytes) {
        assert_eq!(root.encode(), bytes, "one form for each root");
    }
});
