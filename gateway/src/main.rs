use std::process::ExitCode;

fn main() -> ExitCode {
    tombolo::cli::run(std::env::args_os(), tombolo::daemon::Daemon)
}
