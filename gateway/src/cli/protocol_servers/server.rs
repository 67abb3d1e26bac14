//! Asks a running protocol server to read its configuration again.

use super::super::error::CliError;
use super::files::fault;
use std::fs;
use std::io;
use std::path::Path;

/// Sends SIGHUP to the process whose number stands in `pid_file`. False: no such server runs. A number left behind by a
/// server that is gone may be another process's by now, so the name of the program is looked at, too.
pub(super) fn reload(pid_file: &Path, program: &str) -> Result<bool, CliError> {
    let text = match fs::read_to_string(pid_file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(fault("cannot read", pid_file))?,
    };
    let Some(pid) = text.trim().parse::<libc::pid_t>().ok().filter(|pid| *pid > 1) else {
        return Ok(false);
    };
    let running = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if running.trim() != program {
        return Ok(false);
    }
    // SAFETY: takes two numbers; the worst that a race can do is a signal to a process that has just taken the number.
    if unsafe { libc::kill(pid, libc::SIGHUP) } == 0 {
        return Ok(true);
    }
    Err(fault("cannot signal the server of", pid_file)(
        io::Error::last_os_error(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    /// Whoever runs the tests may ignore SIGHUP, and children inherit that.
    fn hearing_hangups(program: &str) -> Command {
        let mut command = Command::new(program);
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        command
    }

    #[test]
    fn only_the_right_program_is_signalled() {
        let directory = tempfile::TempDir::new().unwrap();
        let pid_file = directory.path().join("pid");
        assert!(!reload(&pid_file, "sleep").unwrap());
        for text in ["", "x", "0", "1", "-1", "99999999999"] {
            fs::write(&pid_file, text).unwrap();
            assert!(!reload(&pid_file, "sleep").unwrap(), "{text:?}");
        }
        let mut child = hearing_hangups("sleep").arg("60").spawn().unwrap();
        fs::write(&pid_file, format!("{}\n", child.id())).unwrap();
        assert!(!reload(&pid_file, "smbd").unwrap());
        assert!(
            child.try_wait().unwrap().is_none(),
            "another program must be left alone"
        );
        assert!(reload(&pid_file, "sleep").unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGHUP));
    }
}
