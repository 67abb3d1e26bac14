//! The index from outside: over a hostile storage, what callers rely on, and a reference model.

mod contract;
mod model;
mod support;
