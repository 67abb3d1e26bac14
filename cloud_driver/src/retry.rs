//! When to repeat a failed request: a pure plan, so that a simulation waits exactly as the gateway would.
//!
//! Exponential backoff with full jitter: the delay is uniform between nothing and a ceiling that doubles with every
//! attempt up to a cap. Full jitter spreads the repeats of many clients best and needs no state. A throttled
//! request has a higher ceiling, and never returns before the time that the store asked for.
//!
//! It owns the arithmetic. It does not own clocks, randomness or sleeping; callers bring those.

use crate::{ErrorKind, StoreError};
use core::time::Duration;

/// Bounds of the retries of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1.
    pub attempts_max: u32,
    /// Ceiling of the first delay after an ordinary failure.
    pub backoff_base: Duration,
    /// Ceiling of any delay after an ordinary failure.
    pub backoff_max: Duration,
    /// Ceiling of the first delay after a throttled request.
    pub throttled_base: Duration,
    /// Ceiling of any delay after a throttled request, unless the store itself asks for more.
    pub throttled_max: Duration,
    /// No repeat begins later than this after the first attempt began.
    pub deadline: Duration,
}

impl Default for RetryPolicy {
    /// 100 ms is a few round trips to a region; doubled up to 5 s that makes ten attempts in about 15 s on average.
    /// S3 answers SlowDown while it splits partitions, which takes seconds to minutes: hence 500 ms up to 20 s. After two minutes the
    /// caller is told, because it has a backlog to bound and a status to report.
    fn default() -> Self {
        Self {
            attempts_max: 10,
            backoff_base: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            throttled_base: Duration::from_millis(500),
            throttled_max: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
        }
    }
}

/// What the plan needs to know of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is to be done about it.
    pub kind: ErrorKind,
    /// From the store's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl From<&StoreError> for Failure {
    fn from(error: &StoreError) -> Self {
        Self {
            kind: error.kind(),
            retry_after: error.retry_after(),
        }
    }
}

/// How long to wait before the next attempt, or `None` to give up.
///
/// `attempt` counts the attempts made so far (1 after the first), `elapsed` runs from the beginning of the first,
/// `random` is uniform over all of `u64`.
pub fn plan_retry(
    attempt: u32,
    elapsed: Duration,
    failure: Failure,
    policy: &RetryPolicy,
    random: u64,
) -> Option<Duration> {
    if !failure.kind.is_retryable() || attempt >= policy.attempts_max {
        return None;
    }
    let (base, cap) = match failure.kind {
        ErrorKind::Throttled => (policy.throttled_base, policy.throttled_max),
        _ => (policy.backoff_base, policy.backoff_max),
    };
    let doublings = attempt.saturating_sub(1).min(31);
    let ceiling = base.saturating_mul(1 << doublings).min(cap);
    let delay = failure
        .retry_after
        .unwrap_or(Duration::ZERO)
        .saturating_add(jitter(ceiling, random));
    (elapsed.saturating_add(delay) <= policy.deadline).then_some(delay)
}

/// `random` scaled to `0..=ceiling`.
pub fn jitter(ceiling: Duration, random: u64) -> Duration {
    let ceiling_nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
    let scaled = (u128::from(random) * (u128::from(ceiling_nanos) + 1)) >> 64;
    Duration::from_nanos(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(kind: ErrorKind) -> Failure {
        Failure {
            kind,
            retry_after: None,
        }
    }

    #[test]
    fn ceilings_double_up_to_the_cap() {
        let policy = RetryPolicy::default();
        let ceiling_ms = |attempt, kind| {
            plan_retry(attempt, Duration::ZERO, failure(kind), &policy, u64::MAX)
                .unwrap()
                .as_millis()
        };
        let ordinary: Vec<u128> = (1..=8).map(|attempt| ceiling_ms(attempt, ErrorKind::Retry)).collect();
        assert_eq!(ordinary, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let throttled: Vec<u128> = (1..=7)
            .map(|attempt| ceiling_ms(attempt, ErrorKind::Throttled))
            .collect();
        assert_eq!(throttled, [500, 1000, 2000, 4000, 8000, 16000, 20000]);
    }

    #[test]
    fn the_store_is_left_alone_as_long_as_it_asked() {
        let asked = Failure {
            kind: ErrorKind::Throttled,
            retry_after: Some(Duration::from_secs(30)),
        };
        let policy = RetryPolicy::default();
        assert_eq!(
            plan_retry(1, Duration::ZERO, asked, &policy, 0),
            Some(Duration::from_secs(30))
        );
        assert_eq!(plan_retry(1, Duration::from_secs(91), asked, &policy, 0), None);
    }

    #[test]
    fn jitter_is_full_and_even() {
        let mut prng = tombolo_base::Prng::new(7);
        let ceiling = Duration::from_secs(1);
        let mut tenths = [0u32; 10];
        for _ in 0..10_000 {
            let delay = jitter(ceiling, prng.next_u64());
            tenths[(delay.as_micros() / 100_001) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
        assert_eq!(jitter(Duration::MAX, u64::MAX), Duration::from_nanos(u64::MAX));
    }

    proptest! {
        #[test]
        fn plans_keep_every_bound(
            attempt in any::<u32>(), elapsed_ms in 0u64..200_000, kind_index in 0..ErrorKind::ALL.len(),
            retry_after_ms in proptest::option::of(0u64..200_000), random in any::<u64>(),
        ) {
            let policy = RetryPolicy::default();
            let kind = ErrorKind::ALL[kind_index];
            let elapsed = Duration::from_millis(elapsed_ms);
            let retry_after = retry_after_ms.map(Duration::from_millis);
            let plan = plan_retry(attempt, elapsed, Failure { kind, retry_after }, &policy, random);
            if let Some(delay) = plan {
                prop_assert!(matches!(kind, ErrorKind::Retry | ErrorKind::Throttled | ErrorKind::Unreachable));
                prop_assert!(attempt < policy.attempts_max);
                prop_assert!(elapsed + delay <= policy.deadline);
                prop_assert!(delay >= retry_after.unwrap_or_default());
                prop_assert!(delay <= retry_after.unwrap_or_default() + policy.throttled_max);
            }
        }
    }
}
