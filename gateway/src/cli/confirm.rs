use super::error::CliError;
use std::io::{self, BufRead, IsTerminal, Write};

/// Asks a person whether `what` is to be deleted; scripts, which have no terminal, have decided already.
pub(super) fn confirm(what: &str, name: &str) -> Result<(), CliError> {
    if !io::stdin().is_terminal() {
        return Ok(());
    }
    let mut out = io::stderr().lock();
    write!(out, "Delete {what}? Type its name to confirm: ").map_err(CliError::Output)?;
    out.flush().map_err(CliError::Output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(CliError::Output)?;
    if answer.trim_end_matches(['\r', '\n']) == name {
        return Ok(());
    }
    Err(CliError::Usage("nothing was deleted".into()))
}
