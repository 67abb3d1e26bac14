//! `tombolo_sim._engine`: the engine for Python. Jobs come in as JSON, reports go out as JSON, so that what a job is stands
//! in one place, the engine; nothing is simulated here. Python's lock is let go while the engine works and taken again
//! to report progress, to ask whether the user wants to stop, and to call a store.
//!
//! What the engine refuses is an `EngineError` with its message, which names the field, line or offset.

mod analysis;
mod expansion;
mod graph;
mod history;
mod recommendation;
mod shuffle;
mod store;
mod store_client;
mod watch;

use pyo3::{create_exception, exceptions::PyValueError, prelude::*};
use serde::{Serialize, de::DeserializeOwned};

create_exception!(
    tombolo_sim._engine,
    EngineError,
    PyValueError,
    "The engine refuses a job, or a trace cannot be read."
);

fn refused(error: impl ToString) -> PyErr {
    EngineError::new_err(error.to_string())
}

fn parse<Job: DeserializeOwned>(job: &str) -> PyResult<Job> {
    serde_json::from_str(job).map_err(|error| EngineError::new_err(format!("job: {error}")))
}

fn print<Report: Serialize>(report: &Report) -> PyResult<String> {
    serde_json::to_string(report).map_err(refused)
}

#[pymodule(name = "_engine")]
mod engine {
    use super::{
        parse, print, refused,
        store::PythonStore,
        watch::{counted, watched},
    };
    use pyo3::prelude::*;
    use std::path::PathBuf;

    #[pymodule_export]
    use super::EngineError;
    #[pymodule_export]
    use super::recommendation::Recommendation;
    #[pymodule_export]
    use super::store_client::StoreClient;

    /// A trace through the gateway's core: `replay::Job` to `replay::Report`.
    #[pyfunction]
    #[pyo3(signature = (job, store=None, progress=None))]
    fn replay(py: Python<'_>, job: &str, store: Option<Py<PyAny>>, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        let mut store = store.map(PythonStore::new);
        let result = watched(py, progress.as_ref(), |progress| {
            let store = store
                .as_mut()
                .map(|store| store as &mut dyn tombolo_engine::replay::Store);
            tombolo_engine::replay::run(&job, store, progress)
        });
        // What the store raised says more than that it failed.
        if let Some(raised) = store.and_then(PythonStore::into_raised) {
            return Err(raised);
        }
        print(&result?)
    }

    /// Replacement policies over keys: `keys::Job` to `keys::Report`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn keys(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            tombolo_engine::keys::run(&job, progress)
        })?)
    }

    /// Policies over whole objects with sizes and prices: `objects::Job` to `objects::Report`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn objects(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            tombolo_engine::objects::run(&job, progress)
        })?)
    }

    /// Gateways before a store that feels their load: `load::Job` to `load::Report`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn load(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            tombolo_engine::load::run(&job, progress)
        })?)
    }

    /// A cache of chunks before such a store: `load::ChunkJob` to `load::ChunkReport`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn chunks(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            tombolo_engine::load::run_chunks(&job, progress)
        })?)
    }

    /// Counts of a trace: `Source` to `Info`.
    #[pyfunction]
    #[pyo3(signature = (source, progress=None))]
    fn info(py: Python<'_>, source: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let source = parse(source)?;
        print(&watched(py, progress.as_ref(), |progress| {
            tombolo_trace::info(&source, &mut counted(progress))
        })?)
    }

    /// Structure of a trace's requests: `analysis::Job` to `tombolo_trace::Analysis`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn analyse(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            super::analysis::run(&job, progress)
        })?)
    }

    /// Writes a trace in the project's own format; returns the number of records.
    #[pyfunction]
    #[pyo3(signature = (source, target, progress=None))]
    fn convert(py: Python<'_>, source: &str, target: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let source = parse(source)?;
        watched(py, progress.as_ref(), |progress| {
            tombolo_trace::convert(&source, &target, &mut counted(progress))
        })
    }

    /// Writes a trace with its jumps in another order; returns the number of records.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn shuffle(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let job = parse(job)?;
        watched(py, progress.as_ref(), |progress| super::shuffle::run(&job, progress))
    }

    /// Writes a stand-in for one of the Tombolo paper's traces; returns the number of records: `synthetic::Job`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn generate(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let job = parse(job)?;
        watched(py, progress.as_ref(), |progress| {
            tombolo_engine::synthetic::write(&job, progress)
        })
    }

    /// The history graph that a trace's reads leave: `history::Job` to `graph::Export`.
    #[pyfunction]
    #[pyo3(signature = (job, progress=None))]
    fn history(py: Python<'_>, job: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let job = parse(job)?;
        print(&watched(py, progress.as_ref(), |progress| {
            super::history::run(&job, progress)
        })?)
    }

    /// The latency tables by name.
    #[pyfunction]
    fn models() -> PyResult<String> {
        print(&std::collections::BTreeMap::from(tombolo_engine::replay::MODELS))
    }

    /// A latency table as text, checked: the same with every field in its place.
    #[pyfunction]
    fn latency_table(text: &str) -> PyResult<String> {
        let table = tombolo_cloud_driver::latency_table::LatencyTable::parse(text).map_err(refused)?;
        table.print().map_err(refused)
    }

    /// The shipped prices of stores by name, as they stand in jobs.
    #[pyfunction]
    fn prices() -> PyResult<String> {
        let tables = tombolo_engine::Table::ALL.map(|table| (table.name(), table.prices()));
        print(&std::collections::BTreeMap::from(tables))
    }

    /// What a GiB costs that lies in a store when that has grown for so many periods: equation (6) of the Tombolo paper.
    #[pyfunction]
    fn storage_usd_per_gib(initial_gib: f64, gib_per_period: f64, periods: f64, usd_per_gib_period: f64) -> f64 {
        let growth = tombolo_engine::Growth {
            initial_gib,
            gib_per_period,
            periods,
        };
        growth.usd_per_gib(usd_per_gib_period)
    }

    /// The graph that given reads leave, and its expansion from one block: `expansion::Job` to `expansion::Report`.
    #[pyfunction]
    fn expand(job: &str) -> PyResult<String> {
        print(&super::expansion::run(&parse(job)?).map_err(refused)?)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
