//! Miss ratios of every policy on a trace: `miss_ratios FILE BLOCKS...` prints one row a policy, one column a size.

#[path = "../tests/support/traces.rs"]
mod traces;

use std::error::Error;
use std::path::Path;
use tombolo_cache::{Capacity, Grouping, KeyedCache, Min, Policy, Replacement};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: miss_ratios FILE BLOCKS...")?;
    let sizes = arguments.map(|size| size.parse()).collect::<Result<Vec<u32>, _>>()?;
    let trace = traces::read(Path::new(&file))?;
    println!("{file}: {} accesses", trace.len());
    for policy in Policy::ALL
        .into_iter()
        .filter(|policy| !policy.name().starts_with("gds"))
    {
        row(policy.name(), &trace, &sizes, |capacity| {
            policy.build(capacity, Grouping::Slots)
        });
    }
    row("min", &trace, &sizes, |_| Box::new(Min::new(&trace)));
    Ok(())
}

fn row(name: &str, trace: &[u64], sizes: &[u32], build: impl Fn(Capacity) -> Box<dyn Replacement>) {
    print!("{name:12}");
    for size in sizes {
        let capacity = Capacity::of_blocks(*size);
        let mut cache = KeyedCache::new(capacity, build(capacity));
        let misses = trace.iter().filter(|key| !cache.access(**key)).count();
        print!(" {:.10}", misses as f64 / trace.len() as f64);
    }
    println!();
}
