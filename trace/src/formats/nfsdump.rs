//! What `nfsdump` prints of NFS versions 2 and 3 (Ellard et al., FAST 2003): calls `C2`/`C3` and replies `R2`/`R3`, a
//! line each, with fields as words and numbers in hexadecimal. Taken are the calls to read and to write. A file is
//! named by its handle, a client by its address and port.

use super::csv::Names;
use super::{Decoder, Raw};
use crate::error::Fault;
use crate::input::Input;
use crate::record::Operation;
use crate::text::{Fields, hexadecimal, time_us};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Default)]
pub struct Nfsdump {
    clients: Names,
}

impl Decoder for Nfsdump {
    fn decode(&mut self, input: &mut Input, raw: &mut Raw) -> Result<bool, Fault> {
        loop {
            let Some(line) = input.line()? else { return Ok(false) };
            if self.call(line, raw)? {
                return Ok(true);
            }
        }
    }

    fn unit_bytes(&self) -> u32 {
        1
    }

    fn has_absolute_time(&self) -> bool {
        true
    }
}

impl Nfsdump {
    /// False when the line is something else than a call to read or write.
    fn call(&mut self, line: &[u8], raw: &mut Raw) -> Result<bool, Fault> {
        let mut fields = Fields::words(line);
        let Some(time) = fields.next() else { return Ok(false) };
        let client = fields.need("client")?;
        fields.need("server")?;
        fields.need("protocol")?;
        if !matches!(fields.need("version")?, b"C2" | b"C3") {
            return Ok(false);
        }
        fields.need("call number")?;
        fields.need("procedure")?;
        raw.operation = match fields.need("operation")? {
            b"read" => Operation::Read,
            b"write" => Operation::Write,
            _ => return Ok(false),
        };
        raw.time_us = time_us(time, 1_000_000_000)?;
        let (mut file, mut offset, mut length) = (None, None, None);
        while let Some(name) = fields.next() {
            match name {
                b"fh" => file = Some(fields.need("file handle")?),
                b"off" | b"offset" => offset = Some(hexadecimal(fields.need("offset")?, "offset")?),
                b"count" | b"tcount" => length = Some(hexadecimal(fields.need("count")?, "count")?),
                _ => {}
            }
        }
        raw.volume = xxh3_64(file.ok_or(Fault::Missing { field: "file handle" })?);
        raw.address = offset.ok_or(Fault::Missing { field: "offset" })?;
        raw.bytes = length.ok_or(Fault::Missing { field: "count" })?;
        raw.client = self.clients.number_of(&[b"c", client].concat()) as u32;
        Ok(true)
    }
}
