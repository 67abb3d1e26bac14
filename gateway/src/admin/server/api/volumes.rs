use super::{Answer, Body, Name, Shared, blocking, checked_name};
use crate::admin::model::{Control, VolumeInfo, check_volume_name, check_volume_size};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, patch};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Body of `POST /v1/volumes`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateVolume {
    pub name: String,
    pub size_bytes: u64,
}

/// Body of `PATCH /v1/volumes/{name}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResizeVolume {
    pub size_bytes: u64,
    #[serde(default)]
    pub allow_shrink: bool,
}

pub(super) fn routes() -> Router<Arc<dyn Control>> {
    Router::new()
        .route("/v1/volumes", get(list).post(create))
        .route("/v1/volumes/{name}", patch(resize).delete(delete))
}

async fn list(State(control): Shared) -> Answer<Json<Vec<VolumeInfo>>> {
    blocking(move || control.volume_list()).await.map(Json)
}

async fn create(State(control): Shared, body: Body) -> Answer<(StatusCode, Json<VolumeInfo>)> {
    let CreateVolume { name, size_bytes } = body.parse()?;
    check_volume_name(&name)?;
    check_volume_size(size_bytes)?;
    let created = blocking(move || control.volume_create(&name, size_bytes)).await??;
    Ok((StatusCode::CREATED, Json(created)))
}

async fn resize(State(control): Shared, name: Name, body: Body) -> Answer<Json<VolumeInfo>> {
    let ResizeVolume {
        size_bytes,
        allow_shrink,
    } = body.parse()?;
    let name = checked_name(name, check_volume_name)?;
    check_volume_size(size_bytes)?;
    blocking(move || control.volume_resize(&name, size_bytes, allow_shrink))
        .await?
        .map(Json)
}

async fn delete(State(control): Shared, name: Name) -> Answer<StatusCode> {
    let name = checked_name(name, check_volume_name)?;
    blocking(move || control.volume_delete(&name)).await??;
    Ok(StatusCode::NO_CONTENT)
}
