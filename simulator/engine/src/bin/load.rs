//! Carries out one job of gateways before a store under load: JSON in at standard input, the report as JSON at standard
//! output.

use std::error::Error;
use std::io::Read;
use tombolo_engine::load::{Job, run};

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let job: Job = serde_json::from_str(&text)?;
    let report = run(&job, &mut |_, _| Ok(()))?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
