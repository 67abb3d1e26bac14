use super::*;
use std::sync::mpsc::channel;
use std::thread;

const MIB: usize = 1 << 20;
const LIMITS: Limits = Limits {
    requests_max: 2,
    bytes_max: 1000,
    lock_waiters_max: 1,
};
const LOCK_WAITER: Held = Held {
    bytes: 10,
    waits_for_lock: true,
};

fn in_flight(limits: Limits) -> InFlight {
    InFlight::new(limits, Budget::new(4 * MIB))
}

/// Admits on a thread of its own, which waits first; then does what is to let it in.
fn admit_after(in_flight: &InFlight, held: Held, let_in: impl FnOnce()) -> Admission {
    let (sender, waits) = channel();
    thread::scope(|scope| {
        let admitting = scope.spawn(move || in_flight.admit(held, || sender.send(()).unwrap()));
        waits.recv().unwrap();
        let_in();
        admitting.join().unwrap()
    })
}

#[test]
fn requests_and_bytes_beyond_the_limits_wait() {
    for (first, second, third) in [(0, 0, 0), (600, 100, 600), (5000, 1, 1)] {
        let in_flight = in_flight(LIMITS);
        let [first, second, third] = [first, second, third].map(Held::bytes);
        assert_eq!(in_flight.admit(first, || unreachable!()), Admission::Admitted);
        if first.bytes < LIMITS.bytes_max {
            assert_eq!(in_flight.admit(second, || unreachable!()), Admission::Admitted);
        }
        let admission = admit_after(&in_flight, third, || assert!(!in_flight.release([first])));
        assert_eq!(admission, Admission::Admitted);
    }
}

#[test]
fn a_request_larger_than_the_limit_runs_alone() {
    let in_flight = in_flight(LIMITS);
    let (small, large) = (Held::bytes(1), Held::bytes(5000));
    assert_eq!(in_flight.admit(small, || unreachable!()), Admission::Admitted);
    let admission = admit_after(&in_flight, large, || assert!(!in_flight.release([small])));
    assert_eq!(admission, Admission::Admitted);
}

#[test]
fn who_waits_for_a_lock_takes_no_room() {
    let in_flight = in_flight(LIMITS);
    let admit = |held| in_flight.admit(held, || unreachable!());
    assert_eq!(admit(LOCK_WAITER), Admission::Admitted);
    assert_eq!(admit(LOCK_WAITER), Admission::TooManyLockWaiters);
    assert_eq!([admit(Held::bytes(0)), admit(Held::bytes(0))], [Admission::Admitted; 2]);
    in_flight.release([Held::bytes(0), Held::bytes(0)]);
    assert!(in_flight.wait_until_answered(Instant::now()));
    in_flight.release([LOCK_WAITER]);
    in_flight.wait_until_gone();
    assert_eq!(admit(LOCK_WAITER), Admission::Admitted);
}

#[test]
fn the_end_lets_nobody_in_who_waits() {
    for end in [|in_flight: &InFlight| assert!(!in_flight.end()), InFlight::close] {
        let in_flight = in_flight(LIMITS);
        assert_eq!(in_flight.admit(Held::bytes(900), || ()), Admission::Admitted);
        let admission = admit_after(&in_flight, Held::bytes(900), || end(&in_flight));
        assert_eq!(admission, Admission::Ended);
        assert_eq!(in_flight.admit(LOCK_WAITER, || ()), Admission::Ended);
        assert!(!in_flight.wait_until_answered(Instant::now()));
    }
}

#[test]
fn the_last_one_answered_after_the_end_is_known() {
    let in_flight = in_flight(LIMITS);
    let held = Held::bytes(1);
    assert_eq!(in_flight.admit(held, || ()), Admission::Admitted);
    assert!(!in_flight.release([held]), "more may come");
    assert_eq!(in_flight.admit(held, || ()), Admission::Admitted);
    assert_eq!(in_flight.admit(held, || ()), Admission::Admitted);
    assert!(!in_flight.end());
    assert!(!in_flight.release([held]));
    assert!(in_flight.release([held]) && in_flight.end());
}

#[test]
fn a_client_is_gone_only_if_it_was_not_sent_away() {
    let gone = in_flight(LIMITS);
    assert!(!gone.is_client_gone());
    assert!(gone.set_client_gone() && gone.is_client_gone());
    let sent_away = in_flight(LIMITS);
    sent_away.end();
    assert!(!sent_away.set_client_gone() && !sent_away.is_client_gone());
}

#[test]
fn clients_wait_for_what_others_hold_and_leave_the_line_when_they_end() {
    let limits = Limits {
        bytes_max: 100 * MIB,
        ..LIMITS
    };
    let budget = Budget::new(4 * MIB);
    let [hoarder, other] = [(); 2].map(|()| InFlight::new(limits, Arc::clone(&budget)));
    let (much, more) = (Held::bytes(4 * MIB), Held::bytes(MIB));
    assert_eq!(hoarder.admit(much, || unreachable!()), Admission::Admitted);
    assert_eq!(other.admit(Held::bytes(4096), || unreachable!()), Admission::Admitted);
    let admission = admit_after(&other, more, || assert!(!hoarder.release([much])));
    assert_eq!((admission, budget.held_bytes()), (Admission::Admitted, MIB));
    let admission = admit_after(&hoarder, much, || assert!(!hoarder.end()));
    assert_eq!((admission, budget.held_bytes()), (Admission::Ended, MIB));
    assert!(hoarder.end(), "nothing of it is counted");
    drop(other);
    assert_eq!(budget.held_bytes(), 0);
}
