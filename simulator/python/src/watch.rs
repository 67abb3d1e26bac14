//! Work outside of Python's lock that Python watches.

use crate::refused;
use pyo3::prelude::*;
use std::io;
use tombolo_engine::replay::{Interrupted, Progress};

/// Carries out `work`, calling `progress(done, total)` whenever it reports. Python's signals are looked at on the same
/// occasions, so that Ctrl-C ends it. What Python raised is raised again.
pub fn watched<T: Send, E: ToString + Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(Progress<'_>) -> Result<T, E> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = py.detach(|| {
        work(&mut |done, total| {
            Python::attach(|py| tell(py, progress, done, total)).map_err(|error| {
                raised = Some(error);
                Interrupted
            })
        })
    });
    match raised {
        Some(error) => Err(error),
        None => result.map_err(refused),
    }
}

/// The same for the trace crate, which knows no total and calls an interruption an error of input.
pub fn counted(progress: Progress<'_>) -> impl FnMut(u64) -> io::Result<()> {
    move |done| progress(done, 0).map_err(|Interrupted| io::ErrorKind::Interrupted.into())
}

fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, done: u64, total: u64) -> PyResult<()> {
    py.check_signals()?;
    if let Some(callback) = progress {
        callback.call1(py, (done, total))?;
    }
    Ok(())
}
