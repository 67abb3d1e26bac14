//! What requests to a store were measured to take: quantiles of latency, and bandwidth, by kind, size and parallelism.
//!
//! Owns the file that `tombolo-sim measure` writes (docs/FORMAT.md, "Latency tables"): its fields, their bounds, what
//! holds between the points that were measured, and what they recommend. It measures nothing, and does not know what a latency
//! is used for.

mod quantiles;
mod recommendation;
#[cfg(test)]
pub(crate) mod tests;

pub use quantiles::Quantiles;
pub use recommendation::{Degree, Recommendation};

use serde::{Deserialize, Serialize};

/// Of the file; another one is refused.
pub const VERSION: u32 = 1;
const FORMAT: &str = "tombolo-latency-table";
/// A file that is longer is none of `tombolo-sim measure`.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
const CELLS_MAX: usize = 4_096;
const SIZE_BYTES_MAX: u64 = 1 << 40;
const PARALLELISM_MAX: u32 = 65_536;
/// A latency beyond this is a slip of the pen.
const MS_MAX: f64 = 3_600_000.0;

/// Why a table is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LatencyTableError {
    /// The text is longer than any table.
    #[error("{bytes} bytes are no latency table, which has at most {TEXT_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text is not JSON, or a field is missing, unknown or of another kind.
    #[error("no latency table: {0}")]
    Syntax(String),
    /// It is JSON of something else.
    #[error("format: {0:?} is not {FORMAT:?}")]
    Format(String),
    /// It was written by another version.
    #[error("version: {0} is not {VERSION}")]
    Version(u32),
    /// A field has a value that it cannot have.
    #[error("{field}: {reason}")]
    Field {
        /// Where it stands, such as `get[3].latency_ms`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl LatencyTableError {
    /// For a table that is part of something else: the field's name there goes before its own.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        match self {
            Self::Field { field, reason } => Self::Field {
                field: format!("{outer}{field}"),
                reason,
            },
            other => other,
        }
    }
}

fn refuse(field: impl Into<String>, reason: impl Into<String>) -> LatencyTableError {
    LatencyTableError::Field {
        field: field.into(),
        reason: reason.into(),
    }
}

/// Requests of one kind, size and parallelism, as they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Of each object, which was put or read whole.
    pub size_bytes: u64,
    /// Requests under way at the same time.
    pub parallelism: u32,
    /// Those that were answered.
    pub requests: u64,
    /// Those that failed; they are in no other figure.
    pub failed: u64,
    /// How often it was measured.
    pub repeats: u32,
    /// Repeats that were left out of means and bandwidth, as obvious outliers.
    pub dropped: u32,
    /// Of all that were under way together; the mean of the repeats that were kept.
    pub bytes_per_s: f64,
    /// The mean of the means of the repeats that were kept.
    pub mean_ms: f64,
    /// How far the means of these repeats lie apart: their standard deviation.
    pub mean_ms_deviation: f64,
    /// (quantile, milliseconds), ascending; of the requests of all repeats.
    pub latency_ms: Vec<(f64, f64)>,
}

/// Where a table comes from; for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Time of the end, in UTC.
    pub at: String,
    /// URL of the store.
    pub store: String,
    /// URL of the server, or nothing for AWS.
    pub endpoint: Option<String>,
    /// Which client sent the requests.
    pub client: String,
}

/// A file's fields, as they stand there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    measured: Origin,
    round_trip_ms: f64,
    get: Vec<Cell>,
    put: Vec<Cell>,
}

/// What comes before anything else is looked at.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// All of a store that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyTable {
    /// Where it comes from.
    pub measured: Origin,
    /// Until a TCP connection to the server stands.
    pub round_trip_ms: f64,
    /// Of downloads.
    pub get: Cells,
    /// Of uploads.
    pub put: Cells,
}

impl LatencyTable {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, LatencyTableError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(LatencyTableError::TooLong { bytes: text.len() });
        }
        let syntax = |error: serde_json::Error| LatencyTableError::Syntax(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(syntax)?;
        if head.format != FORMAT {
            return Err(LatencyTableError::Format(head.format));
        }
        if head.version != VERSION {
            return Err(LatencyTableError::Version(head.version));
        }
        let document: Document = serde_json::from_str(text).map_err(syntax)?;
        if !(0.0..=MS_MAX).contains(&document.round_trip_ms) {
            return Err(refuse("round_trip_ms", "0 to 3600000 ms"));
        }
        Ok(Self {
            measured: document.measured,
            round_trip_ms: document.round_trip_ms,
            get: Cells::new(document.get).map_err(|error| error.within("get"))?,
            put: Cells::new(document.put).map_err(|error| error.within("put"))?,
        })
    }

    /// The text that [`LatencyTable::parse`] reads.
    pub fn print(&self) -> Result<String, LatencyTableError> {
        let document = Document {
            format: FORMAT.into(),
            version: VERSION,
            measured: self.measured.clone(),
            round_trip_ms: self.round_trip_ms,
            get: self.get.to_vec(),
            put: self.put.to_vec(),
        };
        serde_json::to_string_pretty(&document).map_err(|error| LatencyTableError::Syntax(error.to_string()))
    }
}

/// The cells of one size, by ascending parallelism; not empty.
type Row = Vec<(Cell, Quantiles)>;

/// The cells of one kind of request, with what holds between them: figures are interpolated between the nearest
/// parallelisms, then between the nearest sizes. Beyond both ends the nearest counts, but a request that is larger than any
/// that was measured takes longer in proportion.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    /// By ascending size; not empty.
    rows: Vec<(u64, Row)>,
}

impl Cells {
    /// Checks every cell; they may come in any order.
    pub fn new(cells: Vec<Cell>) -> Result<Self, LatencyTableError> {
        if cells.is_empty() || cells.len() > CELLS_MAX {
            return Err(refuse("", format!("{} cells, 1 to {CELLS_MAX} can be", cells.len())));
        }
        let mut checked = Vec::with_capacity(cells.len());
        for (index, cell) in cells.into_iter().enumerate() {
            let quantiles = check(&cell).map_err(|error| error.within(&format!("[{index}].")))?;
            checked.push((cell, quantiles));
        }
        checked.sort_by_key(|(cell, _)| (cell.size_bytes, cell.parallelism));
        let mut rows: Vec<(u64, Row)> = Vec::new();
        for (cell, quantiles) in checked {
            match rows.last_mut() {
                Some((size_bytes, row)) if *size_bytes == cell.size_bytes => {
                    if row.last().is_some_and(|(last, _)| last.parallelism == cell.parallelism) {
                        let reason = format!(
                            "{size_bytes} bytes, parallelism {}, stand there twice",
                            cell.parallelism
                        );
                        return Err(refuse("", reason));
                    }
                    row.push((cell, quantiles));
                }
                _ => rows.push((cell.size_bytes, vec![(cell, quantiles)])),
            }
        }
        Ok(Self { rows })
    }

    /// All cells, by size and parallelism.
    pub fn iter(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|(_, row)| row.iter().map(|(cell, _)| cell))
    }

    /// The cells of each size, by size and parallelism; none is empty.
    fn rows(&self) -> impl Iterator<Item = Vec<&Cell>> {
        self.rows
            .iter()
            .map(|(_, row)| row.iter().map(|(cell, _)| cell).collect())
    }

    fn to_vec(&self) -> Vec<Cell> {
        self.iter().cloned().collect()
    }

    /// The quantile `quantile` of 0 to 1 of the latency of a request, while `parallelism` are under way with it.
    pub fn latency_ms(&self, size_bytes: u64, parallelism: u32, quantile: f64) -> f64 {
        self.between(
            size_bytes,
            parallelism,
            |(_, quantiles)| quantiles.at(quantile),
            Beyond::InProportion,
        )
    }

    /// The mean latency of a request.
    pub fn mean_ms(&self, size_bytes: u64, parallelism: u32) -> f64 {
        self.between(size_bytes, parallelism, |(cell, _)| cell.mean_ms, Beyond::InProportion)
    }

    /// What all requests that are under way carry together.
    pub fn bytes_per_s(&self, size_bytes: u64, parallelism: u32) -> f64 {
        self.between(size_bytes, parallelism, |(cell, _)| cell.bytes_per_s, Beyond::Nearest)
    }

    fn between(
        &self,
        size_bytes: u64,
        parallelism: u32,
        figure: impl Fn(&(Cell, Quantiles)) -> f64,
        beyond: Beyond,
    ) -> f64 {
        let of_row = |index: usize| {
            let row = &self.rows[index].1;
            let place = |at: usize| f64::from(row[at].0.parallelism);
            let (left, right, share) = bracket(row.len(), place, f64::from(parallelism));
            figure(&row[left]) * (1.0 - share) + figure(&row[right]) * share
        };
        let place = |at: usize| self.rows[at].0 as f64;
        let (left, right, share) = bracket(self.rows.len(), place, size_bytes as f64);
        let found = of_row(left) * (1.0 - share) + of_row(right) * share;
        let largest = self.rows[self.rows.len() - 1].0;
        match beyond {
            Beyond::InProportion if size_bytes > largest => found * size_bytes as f64 / largest as f64,
            Beyond::InProportion | Beyond::Nearest => found,
        }
    }
}

/// What holds for sizes above all that were measured.
enum Beyond {
    Nearest,
    InProportion,
}

/// The neighbours of a place among ascending ones, and how far it lies from the left to the right one, 0 to 1.
fn bracket(count: usize, place: impl Fn(usize) -> f64, wanted: f64) -> (usize, usize, f64) {
    let right = (0..count).find(|at| place(*at) >= wanted).unwrap_or(count - 1);
    let left = right.saturating_sub(1);
    if place(right) <= wanted || left == right {
        return (right, right, 0.0);
    }
    (left, right, (wanted - place(left)) / (place(right) - place(left)))
}

fn check(cell: &Cell) -> Result<Quantiles, LatencyTableError> {
    if !(1..=SIZE_BYTES_MAX).contains(&cell.size_bytes) {
        return Err(refuse(
            "size_bytes",
            format!("{}: 1 to {SIZE_BYTES_MAX}", cell.size_bytes),
        ));
    }
    if !(1..=PARALLELISM_MAX).contains(&cell.parallelism) {
        return Err(refuse(
            "parallelism",
            format!("{}: 1 to {PARALLELISM_MAX}", cell.parallelism),
        ));
    }
    if cell.requests == 0 {
        return Err(refuse("requests", "a cell without requests says nothing"));
    }
    if cell.dropped >= cell.repeats {
        let reason = format!("{} of {} repeats leave none", cell.dropped, cell.repeats);
        return Err(refuse("dropped", reason));
    }
    if !(cell.bytes_per_s.is_finite() && cell.bytes_per_s > 0.0) {
        return Err(refuse("bytes_per_s", format!("{} is not above 0", cell.bytes_per_s)));
    }
    for (field, ms) in [("mean_ms", cell.mean_ms), ("mean_ms_deviation", cell.mean_ms_deviation)] {
        if !(0.0..=MS_MAX).contains(&ms) {
            return Err(refuse(field, format!("{ms}: 0 to 3600000 ms")));
        }
    }
    Quantiles::new(cell.latency_ms.clone(), MS_MAX).ok_or_else(|| refuse("latency_ms", Quantiles::RULE))
}
