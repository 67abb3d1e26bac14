//! The formats of others: one file each, from bytes to [`Raw`].

mod arc;
mod binary;
mod blktrace;
mod capture;
mod csv;
mod ids;
mod nfsdump;

use crate::error::Fault;
use crate::input::Input;
use crate::record::Operation;
use crate::source::Format;

/// What tells the binary formats.
pub(crate) mod binary_shapes {
    pub use super::binary::{ORACLE_BYTES, vscsi_version};
    pub use super::blktrace::blktrace_order;
}

/// A request as the trace tells it.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub time_us: u64,
    pub operation: Operation,
    pub client: u32,
    pub volume: u64,
    /// In the format's units.
    pub address: u64,
    /// Where the trace counts units; otherwise they follow from address and bytes.
    pub units: Option<u64>,
    pub bytes: u64,
    pub contents: Vec<u64>,
}

impl Raw {
    /// Field by field: a record is cleared for every request of a trace.
    pub fn clear(&mut self) {
        self.time_us = 0;
        self.operation = Operation::default();
        self.client = 0;
        self.volume = 0;
        self.address = 0;
        self.units = None;
        self.bytes = 0;
        self.contents.clear();
    }
}

pub(crate) trait Decoder: Send {
    /// Reads the next request into a cleared `raw`; false at the end.
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault>;
    /// What addresses count.
    fn unit_bytes(&self) -> u32;
    /// Whether times count from something else than the trace's beginning.
    fn has_absolute_time(&self) -> bool {
        false
    }
    fn dropped(&self) -> u64 {
        0
    }
}

pub(crate) fn decoder_of(format: Format, input: &mut Input) -> Result<Box<dyn Decoder>, Fault> {
    Ok(match format {
        Format::Auto | Format::Tbtr => return Err(Fault::UnknownFormat),
        Format::Arc => Box::new(arc::Arc),
        Format::OracleGeneral => Box::new(binary::OracleGeneral),
        Format::Vscsi => Box::new(binary::Vscsi::open(input)?),
        Format::Csv => Box::new(csv::Csv::open(input)?),
        Format::Msr => Box::new(csv::Msr::default()),
        Format::Blktrace => Box::new(blktrace::Blktrace::open(input)?),
        Format::Blkparse => Box::new(blktrace::Blkparse),
        Format::Blocks => Box::new(capture::Blocks),
        Format::Files => Box::new(capture::Files::default()),
        Format::Nfsdump => Box::new(nfsdump::Nfsdump::default()),
        Format::Mqsim => Box::new(arc::Mqsim),
        Format::Objects => Box::new(ids::Objects),
        Format::Ids => Box::new(ids::Ids),
        Format::U32Le => Box::new(ids::Words(u32::from_le_bytes)),
        Format::U32Be => Box::new(ids::Words(u32::from_be_bytes)),
    })
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(bytes, offset))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

/// `bytes` is a record whose length was asked for, so that it holds the field.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}

/// The SCSI commands that move data, by their first byte.
pub(crate) fn scsi_operation(command: u8) -> Option<Operation> {
    match command {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Operation::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(Operation::Write),
        0x42 => Some(Operation::Discard),
        0x35 | 0x91 => Some(Operation::Flush),
        _ => None,
    }
}
