use super::{Answer, Body, Name, Shared, blocking, checked_name, invalid};
use crate::admin::model::{Control, ShareInfo, check_share_name, check_share_quota};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, patch};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Body of `POST /v1/shares`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateShare {
    pub name: String,
    #[serde(default)]
    pub quota_bytes: Option<u64>,
}

/// Body of `PATCH /v1/shares/{name}`. Null takes the quota away; leaving it out is an error.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareQuota {
    #[serde(deserialize_with = "Option::deserialize")]
    pub quota_bytes: Option<u64>,
}

/// Query of `DELETE /v1/shares/{name}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteShare {
    #[serde(default)]
    force: bool,
}

pub(super) fn routes() -> Router<Arc<dyn Control>> {
    Router::new()
        .route("/v1/shares", get(list).post(create))
        .route("/v1/shares/{name}", patch(quota).delete(delete))
}

async fn list(State(control): Shared) -> Answer<Json<Vec<ShareInfo>>> {
    blocking(move || control.share_list()).await?.map(Json)
}

async fn create(State(control): Shared, body: Body) -> Answer<(StatusCode, Json<ShareInfo>)> {
    let CreateShare { name, quota_bytes } = body.parse()?;
    check_share_name(&name)?;
    quota_bytes.map_or(Ok(()), check_share_quota)?;
    let created = blocking(move || control.share_create(&name, quota_bytes)).await??;
    Ok((StatusCode::CREATED, Json(created)))
}

async fn quota(State(control): Shared, name: Name, body: Body) -> Answer<Json<ShareInfo>> {
    let ShareQuota { quota_bytes } = body.parse()?;
    let name = checked_name(name, check_share_name)?;
    quota_bytes.map_or(Ok(()), check_share_quota)?;
    blocking(move || control.share_quota(&name, quota_bytes))
        .await?
        .map(Json)
}

async fn delete(
    State(control): Shared,
    name: Name,
    query: Result<Query<DeleteShare>, QueryRejection>,
) -> Answer<StatusCode> {
    let name = checked_name(name, check_share_name)?;
    let Query(DeleteShare { force }) = query.map_err(|error| invalid("the query", error))?;
    blocking(move || control.share_delete(&name, force)).await??;
    Ok(StatusCode::NO_CONTENT)
}
