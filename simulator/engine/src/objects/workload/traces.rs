//! Object traces from files, packed by zstd or xz or not at all.

use super::super::job::{Error, check_positive, setting};
use super::{Builder, Operation, SizeLaw, Workload};
use crate::replay::Progress;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use tombolo_base::Prng;

/// Lines of time, object and size, as the AdaptSize and webcachesim simulators read them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SizedTrace {
    /// The file.
    pub path: PathBuf,
    /// What sizes are counted in.
    #[serde(default = "one_byte")]
    pub bytes_of_unit: u64,
    /// Without it the first column is not a time.
    #[serde(default)]
    pub us_of_time_unit: Option<f64>,
    /// Which requests are taken for writes.
    #[serde(default)]
    pub writes: Writes,
    /// Where to end; else at the file's end.
    #[serde(default)]
    pub requests_max: Option<u64>,
}

/// Names of objects only, as 32-bit numbers of one byte order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedTrace {
    /// The file.
    pub path: PathBuf,
    /// What they are drawn from.
    pub sizes: SizeLaw,
    /// An object has the same size in each run of one seed.
    #[serde(default)]
    pub sizes_seed: u64,
    /// Which requests are taken for writes.
    #[serde(default)]
    pub writes: Writes,
    /// Where to end; else at the file's end.
    #[serde(default)]
    pub requests_max: Option<u64>,
}

/// Web traces name no writes; so many requests in a million, drawn by seed, are taken for writes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    pub per_million: u64,
    pub seed: u64,
}

fn one_byte() -> u64 {
    1
}

impl Writes {
    fn check(&self) -> Result<(), Error> {
        if self.per_million > 1_000_000 {
            let permitted = "a million at the most";
            return Err(setting("workload.writes.per_million", self.per_million, permitted));
        }
        Ok(())
    }

    fn draw(&self, prng: &mut Prng) -> Operation {
        if prng.below(1_000_000) < self.per_million {
            Operation::Put
        } else {
            Operation::Get
        }
    }
}

/// The file's contents, unpacked as its first bytes say.
fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
    let mut file = BufReader::new(File::open(path)?);
    let magic = file.fill_buf()?;
    if magic.starts_with(ZSTD) {
        return Ok(Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?)));
    }
    if magic.starts_with(XZ) {
        return Ok(Box::new(BufReader::new(lzma_rust2::XzReader::new(file, true))));
    }
    Ok(Box::new(file))
}

/// What the file fails at: a line or, once decompressed, a byte.
fn failed<'a>(path: &'a Path, unit: &'static str, number: u64) -> impl Fn(std::io::Error) -> Error + 'a {
    move |source| Error::Trace {
        path: path.display().to_string(),
        unit,
        number,
        source,
    }
}

impl SizedTrace {
    pub(super) fn check(&self) -> Result<(), Error> {
        check_positive("workload.bytes_of_unit", self.bytes_of_unit as f64)?;
        if let Some(us) = self.us_of_time_unit {
            check_positive("workload.us_of_time_unit", us)?;
        }
        self.writes.check()
    }

    pub(super) fn build(&self, progress: Progress<'_>) -> Result<Workload, Error> {
        let lines = open(&self.path).map_err(failed(&self.path, "line", 1))?.lines();
        let mut last_us = 0;
        let mut prng = Prng::new(self.writes.seed);
        let mut builder = Builder::new(progress);
        let limit = self.requests_max.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX);
        for (line, text) in (1..).zip(lines).take(limit) {
            let refused = |problem| Error::TraceLine {
                path: self.path.display().to_string(),
                line,
                problem,
            };
            let text = text.map_err(failed(&self.path, "line", line))?;
            let [time, object, size] = numbers(&text).map_err(refused)?;
            let time_us = (time as f64 * self.us_of_time_unit.unwrap_or(0.0)) as u64;
            if time_us < last_us {
                return Err(refused("the time of arrival goes back"));
            }
            last_us = time_us;
            let bytes = size.saturating_mul(self.bytes_of_unit);
            builder.add(time_us, object, bytes, self.writes.draw(&mut prng))?;
        }
        builder.finish(self.us_of_time_unit.is_some())
    }
}

fn numbers(line: &str) -> Result<[u64; 3], &'static str> {
    let mut fields = line.split_ascii_whitespace();
    let mut next = || fields.next().and_then(|field| field.parse().ok());
    let parsed = [next(), next(), next()];
    let [Some(time), Some(object), Some(size)] = parsed else {
        return Err("three numbers are expected: time, object and size");
    };
    match fields.next() {
        None => Ok([time, object, size]),
        Some(_) => Err("three numbers are expected, and here are more"),
    }
}

impl KeyedTrace {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.sizes.check()?;
        self.writes.check()
    }

    pub(super) fn build(&self, progress: Progress<'_>) -> Result<Workload, Error> {
        let mut file = open(&self.path).map_err(failed(&self.path, "byte", 0))?;
        let mut prng = Prng::new(self.writes.seed);
        let mut builder = Builder::new(progress);
        let mut bytes = [0; 4];
        for number in 0..self.requests_max.unwrap_or(u64::MAX) {
            let failed = failed(&self.path, "byte", number * bytes.len() as u64);
            if file.fill_buf().map_err(&failed)?.is_empty() {
                break;
            }
            match file.read_exact(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(failed(std::io::Error::new(error.kind(), "the last number is cut off")));
                }
                other => other.map_err(&failed)?,
            }
            let name = u64::from(u32::from_be_bytes(bytes));
            let size = self.sizes.draw(self.sizes_seed, name);
            builder.add(0, name, size, self.writes.draw(&mut prng))?;
        }
        builder.finish(false)
    }
}
