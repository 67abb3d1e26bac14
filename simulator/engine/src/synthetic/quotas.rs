//! How many requests of each kind are left to make, so that the totals are met to the request. What is done next is drawn
//! from what is left, as from an urn.

use crate::random;
use tombolo_base::Prng;

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A task that is done again and again.
    Task,
    /// A long sequential run.
    Run,
    /// Reads in no order.
    Scattered,
    /// A burst of writes.
    Burst,
}

impl Activity {
    pub const ALL: [Self; 4] = [Self::Task, Self::Run, Self::Scattered, Self::Burst];
}

#[derive(Clone, Copy, Debug)]
struct Quota {
    left: u64,
    /// Requests and activities so far; an activity of one request was counted in advance.
    requests: u64,
    activities: u64,
}

/// By activity.
#[derive(Clone, Debug)]
pub struct Quotas([Quota; 4]);

impl Quotas {
    /// Requests to be made, in the order of [`Activity::ALL`].
    pub fn new(requests: [u64; 4]) -> Self {
        Self(requests.map(|left| Quota {
            left,
            requests: 1,
            activities: 1,
        }))
    }

    pub fn left(&self, activity: Activity) -> u64 {
        self.0[activity as usize].left
    }

    /// Of all kinds.
    pub fn left_in_all(&self) -> u64 {
        self.0.iter().map(|quota| quota.left).sum()
    }

    /// What comes next; none when all is done. Kinds come up in proportion to the activities that are left of each, as
    /// far as their mean length tells so far.
    pub fn draw(&self, prng: &mut Prng) -> Option<Activity> {
        let weight = |quota: &Quota| quota.left as f64 * quota.activities as f64 / quota.requests as f64;
        let mut point = random::unit(prng) * self.0.iter().map(weight).sum::<f64>();
        let mut found = None;
        for (activity, quota) in Activity::ALL.into_iter().zip(&self.0) {
            if quota.left > 0 {
                found = Some(activity);
                point -= weight(quota);
                if point < 0.0 {
                    break;
                }
            }
        }
        found
    }

    /// So many were made, no more than were left.
    pub fn spend(&mut self, activity: Activity, requests: u64) {
        let quota = &mut self.0[activity as usize];
        quota.left -= requests;
        quota.requests += requests;
        quota.activities += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_spent_and_kinds_stay_mixed_to_the_end() {
        let prng = &mut Prng::new(1);
        let mut quotas = Quotas::new([30_000, 0, 60_000, 10_000]);
        let mut bursts = [0u64; 10];
        while let Some(activity) = quotas.draw(prng) {
            let done = 100_000 - quotas.left_in_all();
            let length = match activity {
                Activity::Task => 30,
                Activity::Run => panic!("there are none"),
                Activity::Scattered => 12,
                Activity::Burst => 4,
            };
            let length = quotas.left(activity).min(length);
            if activity == Activity::Burst {
                bursts[(done / 10_000) as usize] += length;
            }
            quotas.spend(activity, length);
        }
        assert_eq!(quotas.left_in_all(), 0);
        assert_eq!(bursts.iter().sum::<u64>(), 10_000);
        assert!(
            bursts[1..9].iter().all(|count| (700..1300).contains(count)),
            "{bursts:?}"
        );
    }
}
