//! A trace as a stream of records: what all formats have in common. Units become what the caller asked for, times are
//! put in order, sizes that no request can have are refused.

use crate::columnar::Chunks;
use crate::detect::{detect, is_data_series};
use crate::error::{Fault, Place, TraceError};
use crate::formats::{Decoder, Raw, decoder_of};
use crate::input::Input;
use crate::record::{Operation, Record};
use crate::source::{Format, SORT_WINDOW, Source, TimeOrder, View};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::Read;

/// A block of the gateway.
pub const BLOCK_BYTES: u64 = 4096;
/// A read or write beyond this is damage: a SCSI command's length has 32 bits.
pub const REQUEST_BYTES_MAX: u64 = 1 << 32;
/// Addresses end here, in bytes.
pub const ADDRESS_BYTES_MAX: u64 = 1 << 62;

/// A stream of records.
pub trait Reader: Send {
    /// Reads the next record into `record`; false at the end. After an error there is nothing more to be had.
    fn next(&mut self, record: &mut Record) -> Result<bool, TraceError>;
    /// What the trace is, when it was to be found out.
    fn format(&self) -> Format;
    /// What `first` and `count` count.
    fn unit_bytes(&self) -> u32;
    /// Records that the recorder lost, as far as has been read; zero for formats that do not say.
    fn dropped(&self) -> u64 {
        0
    }
}

/// Opens a trace.
#[expect(
    clippy::disallowed_methods,
    reason = "where traces are opened; all else reads streams"
)]
pub fn open(source: &Source) -> Result<Box<dyn Reader>, TraceError> {
    let name = source.path.display().to_string();
    match File::open(&source.path) {
        Ok(file) => open_stream(file, source),
        Err(error) => Err(TraceError {
            file: name,
            place: Place::File,
            fault: error.into(),
        }),
    }
}

/// Reads a trace from a stream; the source's path only names it.
pub fn open_stream(stream: impl Read + Send + 'static, source: &Source) -> Result<Box<dyn Reader>, TraceError> {
    let name = source.path.display().to_string();
    let fail = |place, fault: Fault| TraceError {
        file: name.clone(),
        place,
        fault,
    };
    let mut input = Input::new(stream).map_err(|error| fail(Place::File, error.into()))?;
    let (format, decoder) = begin(&mut input, source.format, &name).map_err(|fault| match fault {
        Fault::Truncated(_) | Fault::Io(_) => fail(input.end(), fault),
        fault => fail(Place::File, fault),
    })?;
    let unit_bytes = u64::from(source.unit_bytes.unwrap_or(decoder.unit_bytes()).max(1));
    Ok(Box::new(Stream {
        has_absolute_time: decoder.has_absolute_time(),
        format,
        unit_bytes,
        input,
        decoder,
        source: source.clone(),
        raw: Raw::default(),
        base_us: None,
        last_us: 0,
        place: Place::File,
        window: BinaryHeap::new(),
        taken: 0,
        given: 0,
        is_over: false,
    }))
}

/// What the first bytes tell.
fn begin(input: &mut Input, format: Format, name: &str) -> Result<(Format, Box<dyn Decoder>), Fault> {
    if is_data_series(input)? {
        return Err(Fault::DataSeries);
    }
    let format = match format {
        Format::Auto => detect(input, name)?,
        format => format,
    };
    let decoder: Box<dyn Decoder> = match format {
        Format::Tbtr => Box::new(Chunks::open(input)?),
        other => decoder_of(other, input)?,
    };
    Ok((format, decoder))
}

struct Stream {
    format: Format,
    unit_bytes: u64,
    input: Input,
    decoder: Box<dyn Decoder>,
    source: Source,
    raw: Raw,
    has_absolute_time: bool,
    /// The first time, which absolute times are counted from.
    base_us: Option<u64>,
    last_us: u64,
    /// Of the record that was found last.
    place: Place,
    /// Records that wait for older ones ([`TimeOrder::Sort`]).
    window: BinaryHeap<Waiting>,
    /// Records decoded.
    taken: u64,
    /// Records handed out.
    given: u64,
    is_over: bool,
}

/// Ordered so that the oldest is the greatest, and among equals the first.
struct Waiting {
    number: u64,
    place: Place,
    record: Record,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.record.time_us, other.number).cmp(&(self.record.time_us, self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl Reader for Stream {
    fn next(&mut self, record: &mut Record) -> Result<bool, TraceError> {
        if self.is_over || self.source.limit.is_some_and(|limit| self.given >= limit) {
            return Ok(false);
        }
        let found = match self.source.time_order {
            TimeOrder::Sort => self.sorted(record),
            TimeOrder::Error | TimeOrder::Clamp => self.decode(record),
        };
        let result = match found {
            Ok(true) => self
                .put_in_order(record)
                .map(|()| true)
                .map_err(|fault| (self.place, fault)),
            Ok(false) => Ok(false),
            Err(fault) => Err((self.input.place(), fault)),
        };
        self.is_over = !matches!(result, Ok(true));
        self.given += u64::from(!self.is_over);
        result.map_err(|(place, fault)| TraceError {
            file: self.source.path.display().to_string(),
            place,
            fault,
        })
    }

    fn format(&self) -> Format {
        self.format
    }

    fn unit_bytes(&self) -> u32 {
        match self.source.view {
            View::Units => self.unit_bytes as u32,
            View::Blocks | View::Ids => BLOCK_BYTES as u32,
        }
    }

    fn dropped(&self) -> u64 {
        self.decoder.dropped()
    }
}

impl Stream {
    fn decode(&mut self, record: &mut Record) -> Result<bool, Fault> {
        self.raw.clear();
        match self.decoder.decode(&mut self.input, &mut self.raw) {
            Ok(true) => {}
            Err(Fault::Truncated(_)) if self.source.allow_truncated => return Ok(false),
            other => return other,
        }
        self.taken += 1;
        self.place = self.input.place();
        self.address(record)?;
        record.time_us = self.raw.time_us;
        record.operation = self.raw.operation;
        record.client = self.raw.client;
        record.volume = self.raw.volume;
        record.contents.clear();
        if !self.raw.contents.is_empty() {
            std::mem::swap(&mut record.contents, &mut self.raw.contents);
        }
        let found = record.contents.len();
        if found > 0 && self.source.view == View::Blocks && found as u64 != record.count {
            let count = record.count;
            return Err(Fault::Contents { found, count });
        }
        Ok(true)
    }

    /// Puts the raw address into the units that were asked for.
    fn address(&self, record: &mut Record) -> Result<(), Fault> {
        let raw = &self.raw;
        let bounded = |field, value: u64, max: u64, permitted| match value <= max {
            true => Ok(value),
            false => Err(Fault::OutOfRange {
                field,
                value,
                permitted,
            }),
        };
        let transfers = matches!(raw.operation, Operation::Read | Operation::Write);
        let max = if transfers {
            REQUEST_BYTES_MAX
        } else {
            ADDRESS_BYTES_MAX
        };
        match raw.units {
            Some(units) => bounded("length", units, max / self.unit_bytes, "the length of a request")?,
            None => bounded("length", raw.bytes, max, "the length of a request")?,
        };
        record.bytes = raw.bytes;
        record.first = raw.address;
        record.count = 1;
        if self.source.view == View::Ids {
            return Ok(());
        }
        let address_max = ADDRESS_BYTES_MAX / self.unit_bytes;
        bounded("address", raw.address, address_max, "an address below 2^62 bytes")?;
        record.count = raw.units.unwrap_or_else(|| raw.bytes.div_ceil(self.unit_bytes));
        if self.source.view == View::Blocks {
            let start = raw.address * self.unit_bytes;
            let bytes = raw.units.map_or(raw.bytes, |units| units * self.unit_bytes);
            record.first = start / BLOCK_BYTES;
            record.count = match bytes {
                0 => 0,
                _ => (start + bytes).div_ceil(BLOCK_BYTES) - record.first,
            };
        }
        Ok(())
    }

    fn sorted(&mut self, record: &mut Record) -> Result<bool, Fault> {
        while self.window.len() < SORT_WINDOW {
            let mut waiting = Record::default();
            if !self.decode(&mut waiting)? {
                break;
            }
            self.window.push(Waiting {
                number: self.taken,
                place: self.place,
                record: waiting,
            });
        }
        match self.window.pop() {
            Some(oldest) => {
                *record = oldest.record;
                self.place = oldest.place;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn put_in_order(&mut self, record: &mut Record) -> Result<(), Fault> {
        let base = if self.has_absolute_time {
            *self.base_us.get_or_insert(record.time_us)
        } else {
            0
        };
        let time_us = record.time_us.checked_sub(base).filter(|time| *time >= self.last_us);
        match (time_us, self.source.time_order) {
            (Some(time_us), _) => record.time_us = time_us,
            (None, TimeOrder::Clamp) => record.time_us = self.last_us,
            (None, _) => {
                return Err(Fault::TimeGoesBack {
                    before: base + self.last_us,
                    time: record.time_us,
                });
            }
        }
        self.last_us = record.time_us;
        Ok(())
    }
}
