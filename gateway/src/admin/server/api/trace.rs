use super::{Answer, Body, Shared, blocking};
use crate::admin::model::{Control, TraceStatus, check_trace_path, check_trace_size};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Body of `POST /v1/trace`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartTrace {
    pub path: PathBuf,
    pub bytes_max: u64,
}

pub(super) fn routes() -> Router<Arc<dyn Control>> {
    Router::new().route("/v1/trace", get(status).post(start).delete(stop))
}

async fn status(State(control): Shared) -> Answer<Json<TraceStatus>> {
    blocking(move || control.trace_status()).await.map(Json)
}

async fn start(State(control): Shared, body: Body) -> Answer<(StatusCode, Json<TraceStatus>)> {
    let StartTrace { path, bytes_max } = body.parse()?;
    check_trace_path(&path)?;
    check_trace_size(bytes_max)?;
    let started = blocking(move || control.trace_start(&path, bytes_max)).await??;
    Ok((StatusCode::CREATED, Json(started)))
}

/// Answers when the file is whole.
async fn stop(State(control): Shared) -> Answer<Json<TraceStatus>> {
    blocking(move || control.trace_stop()).await.map(Json)
}
