//! A store written in Python, as the replay's cloud.

use pyo3::prelude::*;
use tombolo_engine::replay::{GetRequest, PutRequest, Store};

/// Calls `get(object, offset_bytes, bytes, demand)` and `put(object, bytes)`, which answer with the milliseconds that it
/// is to have taken, or with None for a latency from the job's tables.
pub struct PythonStore {
    object: Py<PyAny>,
    raised: Option<PyErr>,
}

impl PythonStore {
    pub fn new(object: Py<PyAny>) -> Self {
        Self { object, raised: None }
    }

    /// What the store raised, if it did.
    pub fn into_raised(self) -> Option<PyErr> {
        self.raised
    }

    fn keep<T>(&mut self, result: PyResult<T>) -> Result<T, String> {
        result.map_err(|error| {
            let message = error.to_string();
            self.raised = Some(error);
            message
        })
    }
}

impl Store for PythonStore {
    fn get(&mut self, request: &GetRequest) -> Result<Option<f64>, String> {
        let arguments = (request.object, request.offset_bytes, request.bytes, request.demand);
        let answer = Python::attach(|py| self.object.call_method1(py, "get", arguments)?.extract(py));
        self.keep(answer)
    }

    fn put(&mut self, request: &PutRequest) -> Result<Option<f64>, String> {
        let arguments = (request.object, request.bytes);
        let answer = Python::attach(|py| self.object.call_method1(py, "put", arguments)?.extract(py));
        self.keep(answer)
    }
}
