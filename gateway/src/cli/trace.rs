//! `tombolo trace`: what clients ask for, recorded by the running gateway into a file for the simulator.

use super::arguments::TraceCommand;
use super::error::CliError;
use super::output;
use crate::admin::client::Client;
use crate::admin::endpoints::{self, OfStore, StartTrace};
use crate::admin::model::{TraceState, TraceStatus};
use indicatif::{HumanBytes, HumanCount};

pub(super) fn run(client: &Client, command: TraceCommand) -> Result<(), CliError> {
    let (status, json) = match command {
        TraceCommand::Start {
            file,
            max_size,
            store,
            json,
        } => {
            // Relative to where the user is, not to where the gateway runs.
            let path = std::path::absolute(&file).map_err(CliError::Output)?;
            let request = StartTrace {
                path,
                bytes_max: max_size.0,
                store,
            };
            (client.ask(&endpoints::TRACE_START, &request)?, json)
        }
        TraceCommand::Stop { store, json } => (client.ask(&endpoints::TRACE_STOP, &OfStore { store })?, json),
        TraceCommand::Status { store, json } => (client.ask(&endpoints::TRACE_STATUS, &OfStore { store })?, json),
    };
    if json {
        return output::json(&status);
    }
    output::text(&shown(&status))
}

fn shown(status: &TraceStatus) -> String {
    let Some(path) = &status.path else {
        return "no trace was recorded since the gateway's start".into();
    };
    let mut text = format!(
        "{}: {}, {} requests, {} of {}",
        path,
        status.state.as_str(),
        HumanCount(status.records),
        HumanBytes(status.bytes),
        HumanBytes(status.bytes_max)
    );
    if status.dropped > 0 {
        text += &format!(
            "; {} requests are missing: too many came at once",
            HumanCount(status.dropped)
        );
    }
    if let (TraceState::Failed, Some(error)) = (status.state, &status.error) {
        text += &format!("; {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let mut status = TraceStatus::default();
        assert_eq!(shown(&status), "no trace was recorded since the gateway's start");
        status = TraceStatus {
            state: TraceState::Recording,
            path: Some("/tmp/a".into()),
            records: 1_234,
            bytes: 2_048,
            bytes_max: 1 << 30,
            ..status
        };
        assert_eq!(
            shown(&status),
            "/tmp/a: recording, 1,234 requests, 2.00 KiB of 1.00 GiB"
        );
        status.dropped = 5;
        status.state = TraceState::Failed;
        status.error = Some("disk".into());
        assert!(shown(&status).ends_with("; 5 requests are missing: too many came at once; disk"));
    }
}
