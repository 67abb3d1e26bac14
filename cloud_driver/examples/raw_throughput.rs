//! The yardstick: plain parallel PUTs, then GETs, of objects of given sizes at given concurrencies, with this crate's client and
//! nothing above it. One JSON object per size and concurrency, a line each.
//!
//! ```text
//! raw_throughput --store s3://BUCKET[/PREFIX] [--endpoint http://HOST:PORT] [--sizes 262144] [--concurrency 1,8,32] [--count 1000]
//! raw_throughput --store dir:/PATH ...
//! ```
//!
//! Credentials come from the usual chain. Objects are written below `raw-throughput/` and deleted afterwards. Contents are random,
//! so that no server can compress or deduplicate them.

use bytes::Bytes;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tombolo_base::Prng;
use tombolo_cloud_driver::{ObjectStore, PutMode, StoreSettings, StoreUrl, open_store};

struct Plan {
    url: StoreUrl,
    settings: StoreSettings,
    sizes_bytes: Vec<usize>,
    concurrencies: Vec<usize>,
    count: usize,
}

/// One kind of request, all of them.
struct Measured {
    elapsed: Duration,
    latencies: Vec<Duration>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("raw_throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let plan = parse(std::env::args().skip(1))?;
    let store = open_store(&plan.url, &plan.settings)?;
    store.check().await?;
    for size_bytes in &plan.sizes_bytes {
        for concurrency in &plan.concurrencies {
            let put = measure(&store, &plan, *concurrency, Request::Put(*size_bytes)).await?;
            let get = measure(&store, &plan, *concurrency, Request::Get(*size_bytes)).await?;
            measure(&store, &plan, *concurrency, Request::Delete).await?;
            println!(
                "{{\"store\":\"{}\",\"size_bytes\":{size_bytes},\"concurrency\":{concurrency},\"count\":{},\"put\":{},\"get\":{}}}",
                plan.url.to_string().escape_default(),
                plan.count,
                put.json(*size_bytes),
                get.json(*size_bytes),
            );
        }
    }
    Ok(())
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Plan, Failure> {
    let mut settings = StoreSettings::default();
    let (mut url, mut sizes_bytes, mut concurrencies, mut count) = (None, vec![262_144], vec![1, 8, 32], 1_000);
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match &name[..] {
            "--store" => url = Some(value.parse()?),
            "--endpoint" => {
                settings.s3.allow_http = value.starts_with("http://");
                settings.s3.endpoint = Some(value);
            }
            "--sizes" => sizes_bytes = numbers(&value)?,
            "--concurrency" => concurrencies = numbers(&value)?,
            "--count" => count = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    if count == 0 || concurrencies.contains(&0) {
        return Err("--count and --concurrency must be at least 1".into());
    }
    Ok(Plan {
        url: url.ok_or("--store is required")?,
        settings,
        sizes_bytes,
        concurrencies,
        count,
    })
}

fn numbers(list: &str) -> Result<Vec<usize>, Failure> {
    Ok(list
        .split(',')
        .map(|number| number.trim().parse())
        .collect::<Result<_, _>>()?)
}

#[derive(Clone, Copy)]
enum Request {
    Put(usize),
    Get(usize),
    Delete,
}

async fn measure(
    store: &Arc<dyn ObjectStore>,
    plan: &Plan,
    concurrency: usize,
    request: Request,
) -> Result<Measured, Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    let begun = Instant::now();
    for worker in 0..concurrency {
        let (store, next, count) = (Arc::clone(store), Arc::clone(&next), plan.count);
        workers.spawn(async move { work(&*store, request, worker as u64, &next, count).await });
    }
    let mut latencies = Vec::with_capacity(plan.count);
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    let elapsed = begun.elapsed();
    latencies.sort_unstable();
    Ok(Measured { elapsed, latencies })
}

async fn work(
    store: &dyn ObjectStore,
    request: Request,
    seed: u64,
    next: &AtomicUsize,
    count: usize,
) -> Result<Vec<Duration>, Failure> {
    let mut content = match request {
        Request::Put(size_bytes) => vec![0; size_bytes],
        Request::Get(_) | Request::Delete => Vec::new(),
    };
    Prng::new(seed).fill(&mut content);
    let mut latencies = Vec::new();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(latencies);
        }
        let key = format!("raw-throughput/{:02x}/{index:08}", index % 256);
        if let (Request::Put(_), Some(head)) = (request, content.first_chunk_mut()) {
            *head = index.to_le_bytes();
        }
        let payload = Bytes::copy_from_slice(&content);
        let begun = Instant::now();
        match request {
            Request::Put(_) => {
                store.put(&key, payload, PutMode::Overwrite).await?;
            }
            Request::Get(size_bytes) => {
                let found_bytes = store.get(&key, None).await?.len();
                if found_bytes != size_bytes {
                    return Err(format!("{key}: {found_bytes} of {size_bytes} bytes").into());
                }
            }
            Request::Delete => store.delete(&key).await?,
        }
        latencies.push(begun.elapsed());
    }
}

impl Measured {
    fn json(&self, size_bytes: usize) -> String {
        let requests = self.latencies.len();
        let per_second = requests as f64 / self.elapsed.as_secs_f64();
        let quantile = |permille: usize| self.latencies[(requests - 1) * permille / 1000].as_secs_f64() * 1e3;
        format!(
            "{{\"requests_per_second\":{per_second:.1},\"mebibytes_per_second\":{:.1},\"mean_ms\":{:.3},\"p50_ms\":{:.3},\"p99_ms\":{:.3}}}",
            per_second * size_bytes as f64 / f64::from(1 << 20),
            self.latencies.iter().sum::<Duration>().as_secs_f64() * 1e3 / requests as f64,
            quantile(500),
            quantile(990),
        )
    }
}
