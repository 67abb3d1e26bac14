//! What the client asks for: runs of requests through files.

use crate::random;
use serde::{Deserialize, Serialize};
use tombolo_base::{BLOCK_BYTES, Prng};

/// Runs of requests through files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// How many there are.
    pub count: u32,
    /// Their size, log-normal.
    pub mean_bytes: f64,
    /// Of the logarithm.
    pub sigma: f64,
    /// The n-th most popular file is opened in proportion to n to the power of minus this.
    pub exponent: f64,
    /// Of one request, in whole blocks.
    pub request_bytes: u64,
    /// Requests in a run, on average; they follow each other in the file.
    pub run_requests: f64,
    /// Runs that write, per thousand.
    pub write_permille: u32,
    /// Runs that begin at the file's beginning, per thousand; the others begin anywhere.
    pub from_beginning_permille: u32,
    /// All together.
    pub requests: u64,
    /// Between an answer and the next request.
    pub think_ms: f64,
}

/// A request of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub file: u32,
    pub first_block: u64,
    pub blocks: u64,
    pub is_write: bool,
    pub began_us: u64,
}

/// Where the client stands.
pub(super) struct Client {
    files: Files,
    pub blocks_of: Vec<u64>,
    popularity: Vec<f64>,
    prng: Prng,
    pub left: u64,
    run: (u32, u64, u64, bool),
}

impl Client {
    pub fn new(files: &Files, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let blocks_of = (0..files.count)
            .map(|_| {
                (files.mean_bytes * random::unit_lognormal(&mut prng, files.sigma)) as u64 / BLOCK_BYTES as u64 + 1
            })
            .collect();
        let mut total = 0.0;
        let popularity = (1..=files.count).map(|rank| {
            total += f64::from(rank).powf(-files.exponent);
            total
        });
        Self {
            popularity: popularity.collect(),
            blocks_of,
            prng,
            left: files.requests,
            run: (0, 0, 0, false),
            files: files.clone(),
        }
    }

    pub fn next(&mut self, now: u64) -> Option<Wanted> {
        self.left = self.left.checked_sub(1)?;
        let request = self.files.request_bytes / BLOCK_BYTES as u64;
        let (_, next, left, _) = self.run;
        if left == 0 || next >= self.blocks_of[self.run.0 as usize] {
            let total = self.popularity.last().copied().unwrap_or(1.0);
            let point = random::unit(&mut self.prng) * total;
            let file = self
                .popularity
                .partition_point(|end| *end <= point)
                .min(self.blocks_of.len() - 1);
            let is_from_beginning = self.prng.chance(u64::from(self.files.from_beginning_permille));
            let first = if is_from_beginning {
                0
            } else {
                self.prng.below(self.blocks_of[file].div_ceil(request)) * request
            };
            let length = (-(1.0 - random::unit(&mut self.prng)).ln() * self.files.run_requests) as u64 + 1;
            let is_write = self.prng.chance(u64::from(self.files.write_permille));
            self.run = (file as u32, first, length, is_write);
        }
        let (file, first_block, left, is_write) = self.run;
        self.run = (file, first_block + request, left - 1, is_write);
        let blocks = request.min(self.blocks_of[file as usize] - first_block);
        Some(Wanted {
            file,
            first_block,
            blocks,
            is_write,
            began_us: now,
        })
    }
}
