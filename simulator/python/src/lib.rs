use pyo3::prelude::*;
#[pymodule(name = "_engine")]
mod engine {
    use pyo3::prelude::*;
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
