//! What a store's figures recommend, for `tombolo-sim measure`: the procedure is the one by which the gateway starts.

use crate::{parse, print, refused};
use pyo3::prelude::*;
use tombolo_cloud_driver::latency_table::{Cell, Cells, Recommendation as Found};

/// Of cells of one kind, as JSON.
#[pyclass(frozen)]
pub struct Recommendation(Found);

#[pymethods]
impl Recommendation {
    #[new]
    fn new(cells: &str) -> PyResult<Self> {
        let cells: Vec<Cell> = parse(cells)?;
        Ok(Self(Found::of(&Cells::new(cells).map_err(refused)?)))
    }

    /// All its fields, as JSON.
    fn data(&self) -> PyResult<String> {
        print(&self.0)
    }

    /// Requests of this size that hardly wait for each other.
    fn parallelism(&self, size_bytes: u64) -> u32 {
        self.0.parallelism(size_bytes)
    }

    /// Requests of this size that use all bandwidth.
    fn saturating_parallelism(&self, size_bytes: u64) -> u32 {
        self.0.saturating_parallelism(size_bytes)
    }
}
