//! A whole object: descriptor, stored blocks, zstd frames.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tombolo_cloud_driver::object::fuzz_decode(bytes));
