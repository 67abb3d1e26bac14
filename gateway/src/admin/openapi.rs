//! docs/openapi.json from the endpoints themselves.

use super::endpoint::{Description, parameter};
use super::{endpoints, model::ControlError};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Where components stand in an OpenAPI document.
const SCHEMAS: &str = "/components/schemas";
const ABOUT: &str = "JSON over HTTP on the gateway's admin socket. Whoever can open the socket may do everything. \
     `tombolo openapi` prints this document; a test compares the two.";

/// The document of OpenAPI 3.1, whose schemas are those of JSON Schema 2020-12.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut generator = settings.into_generator();
    let refused = refused(&mut generator);
    let mut paths = Map::from_iter([("/metrics".to_owned(), metrics(&refused))]);
    for description in endpoints::all() {
        let methods = paths.entry(description.route.path).or_insert_with(|| json!({}));
        methods[description.route.method.name().to_lowercase()] = operation(&description, &refused, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Tombolo admin API", "version": "1", "description": ABOUT },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn metrics(refused: &Value) -> Value {
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    json!({ "get": {
        "operationId": "metrics",
        "summary": "All metrics in Prometheus's text format.",
        "responses": { "200": { "description": "The metrics.", "content": text }, "default": refused },
    } })
}

fn refused(generator: &mut SchemaGenerator) -> Value {
    let schema = generator.subschema_for::<ControlError>();
    json!({ "description": "Why the request was refused.", "content": { "application/json": { "schema": schema } } })
}

fn operation(description: &Description, refused: &Value, generator: &mut SchemaGenerator) -> Value {
    let route = description.route;
    let mut operation = json!({
        "operationId": description.name.to_lowercase(),
        "summary": description.about.concat().trim(),
        "responses": { route.status.to_string(): answered(description, generator), "default": refused },
    });
    let Some(request) = description.request else {
        return operation;
    };
    let mut body = request(generator);
    let mut parameters = take_parameters(&mut body, "path", |field| {
        route.path.split('/').any(|segment| parameter(segment) == Some(field))
    });
    if route.method.has_body() {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": body } } });
    } else {
        parameters.extend(take_parameters(&mut body, "query", |_| true));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

fn answered(description: &Description, generator: &mut SchemaGenerator) -> Value {
    let schema = (description.answer)(generator);
    if schema.get("type").is_some_and(|kind| kind == "null") {
        return json!({ "description": "Done." });
    }
    json!({ "description": "Done.", "content": { "application/json": { "schema": schema } } })
}

/// Takes fields out of a request's schema that do not travel in its body.
fn take_parameters(schema: &mut Schema, place: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let names: Vec<String> = fields.keys().filter(|name| is_wanted(name)).cloned().collect();
    let mut parameters = Vec::new();
    for name in &names {
        let mut field = fields.remove(name).unwrap_or_default();
        let about = field.as_object_mut().and_then(|field| field.remove("description"));
        let mut parameter = json!({
            "name": name, "in": place, "required": required.contains(&json!(name)), "schema": field,
        });
        if let Some(about) = about {
            parameter["description"] = about;
        }
        parameters.push(parameter);
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| !names.iter().any(|name| field == name));
    }
    parameters
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
        let written = std::fs::read_to_string(path).unwrap();
        let made = serde_json::to_string_pretty(&super::document()).unwrap() + "\n";
        assert!(written == made, "write it anew: tombolo openapi > docs/openapi.json");
    }
}
