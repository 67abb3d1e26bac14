//! The data keys as an object in the store, and a master key as text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tombolo_cloud_driver::keys::fuzz_decode(bytes));
