use super::{Answer, Body, Shared, blocking, invalid};
use crate::admin::model::{Control, PolicyStatus};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<dyn Control>> {
    Router::new().route("/v1/policy", get(show).patch(set))
}

async fn show(State(control): Shared) -> Answer<Json<PolicyStatus>> {
    blocking(move || control.policy()).await.map(Json)
}

/// The body holds keys of `[prefetch]`, and `replacement` of `[cache]`, with their values.
async fn set(State(control): Shared, body: Body) -> Answer<Json<PolicyStatus>> {
    let changes: Map<String, Value> = body.parse()?;
    let changes = toml::Table::try_from(changes).map_err(|error| invalid("the body", error))?;
    blocking(move || control.policy_set(changes)).await?.map(Json)
}
