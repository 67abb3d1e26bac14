//! The command line. It talks to the running gateway over the admin socket only, to tgtd through
//! tgtadm, and to the servers of shares through their configuration files and signals.

mod arguments;
mod bench;
mod cache;
mod check;
mod checkpoint;
mod confirm;
mod drain;
pub(crate) mod error;
mod key;
mod local;
mod output;
mod policy;
mod prices;
mod protocol_servers;
mod recover;
mod salvage;
mod share;
mod status;
mod trace;
mod volume;

use crate::admin::client::Client;
use crate::runtime::{KeptRootInfo, RecoverOptions, RecoverProgress, Recovered, ResizedCache};
use crate::salvage::Salvage;
use crate::settings::Settings;
use arguments::{Arguments, Command, Connection, MetricsArguments};
use clap::Parser;
use error::CliError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const SOCKET_VARIABLE: &str = "TOMBOLO_SOCKET";

/// What the command line does on this machine without a running gateway; errors are texts for people.
pub trait Daemon {
    /// Runs the gateway until it is told to stop; with `accept_loss` also on what is left of a state directory.
    fn serve(&self, settings: Settings, accept_loss: bool) -> Result<(), String>;
    /// Makes a state directory of what the store holds.
    fn recover(
        &self,
        settings: &Settings,
        how: RecoverOptions,
        tell: &dyn Fn(RecoverProgress),
    ) -> Result<Recovered, String>;
    /// What a state directory has and its store lacks, copied to `target` if that is given.
    fn salvage(&self, settings: &Settings, target: Option<&Path>, tell: &dyn Fn(&str)) -> Result<Salvage, String>;
    /// Makes the cache as large as the settings say.
    fn resize_cache(&self, settings: &Settings) -> Result<ResizedCache, String>;
    /// The states that a recovery can go back to.
    fn roots(&self, settings: &Settings) -> Result<Vec<KeptRootInfo>, String>;
}

/// Carries out one command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>, daemon: impl Daemon) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version go to standard output and are no failure.
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match carry_out(arguments, &daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tombolo: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn carry_out(arguments: Arguments, daemon: &impl Daemon) -> Result<(), CliError> {
    let Arguments { connection, command } = arguments;
    match command {
        Command::Serve(options) => local::serve(&connection, &options, daemon),
        Command::Recover(options) => recover::run(&connection, options, daemon),
        Command::Salvage(options) => salvage::run(&connection, &options, daemon),
        Command::Cache(command) => cache::run(&connection, &command, daemon),
        Command::CheckConfig { json } => local::check_config(&connection, json),
        Command::Settings { markdown, json } => local::settings(&connection, markdown, json),
        Command::Prices { table, json } => prices::run(table, json),
        Command::Openapi => output::json(&crate::admin::openapi::document()),
        Command::Metrics(MetricsArguments { names: true }) => output::lines(crate::metrics::names()),
        Command::Metrics(MetricsArguments { names: false }) => output::text(&client(&connection)?.metrics()?),
        Command::Bench(command) => bench::run(command),
        Command::Volume(command) => volume::run(&client(&connection)?, command),
        Command::Share(command) => share::run(&client(&connection)?, command),
        Command::Checkpoint { store, json } => checkpoint::run(&client(&connection)?, store, json),
        Command::Key(command) => key::run(&client(&connection)?, command),
        Command::Check {
            store,
            resume,
            of,
            json,
        } => check::run(&client(&connection)?, (store, resume), of, json),
        Command::Export(command) => protocol_servers::run(&client(&connection)?, command),
        Command::Status { json } => status::run(&client(&connection)?, json),
        Command::Trace(command) => trace::run(&client(&connection)?, command),
        Command::Policy(command) => policy::run(&client(&connection)?, command),
        Command::Drain(options) => drain::run(&client(&connection)?, &options),
    }
}

fn client(connection: &Connection) -> Result<Client, CliError> {
    socket_path(connection).map(Client::new)
}

/// What was said on the command line goes before the environment.
fn socket_path(connection: &Connection) -> Result<PathBuf, CliError> {
    if let Some(path) = &connection.socket {
        return Ok(path.clone());
    }
    if let Some(file) = &connection.config {
        return Ok(Settings::load(file)?.admin_socket());
    }
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    Ok(Settings::default().admin_socket())
}
