use super::*;
use crate::runtime::OpenError;
use tombolo_billing::Table;

fn count(cause: Cause, operation: Operation, requests: u64, charged: u64, bytes: u64) -> CauseCounts {
    CauseCounts {
        cause,
        operation,
        requests,
        charged,
        bytes,
    }
}

#[test]
fn what_is_charged_is_used_by_cause() {
    let used = used(&[
        count(Cause::Flush, Operation::Put, 5, 4, 400),
        count(Cause::Flush, Operation::Head, 3, 3, 0),
        count(Cause::Demand, Operation::Get, 7, 6, 70),
        count(Cause::Recovery, Operation::Check, 1, 1, 0),
        count(Cause::Recovery, Operation::List, 2, 2, 0),
        count(Cause::Removal, Operation::Delete, 9, 9, 0),
    ]);
    let expected = Usage {
        puts: 4,
        heads: 3,
        bytes_up: 400,
        ..Usage::default()
    };
    assert_eq!(used[Cause::Flush as usize], expected);
    assert_eq!(
        (
            used[Cause::Demand as usize].gets,
            used[Cause::Demand as usize].bytes_down
        ),
        (6, 70)
    );
    assert_eq!(used[Cause::Recovery as usize].lists, 3);
    assert_eq!(used[Cause::Removal as usize].deletes, 9);
    assert_eq!(used[Cause::Other as usize], Usage::default());
}

#[test]
fn roots_and_deleted_metadata_are_removed_objects() {
    let counted = used(&[
        count(Cause::Journal, Operation::Put, 3, 3, 3_000),
        count(Cause::Tree, Operation::Put, 1, 1, 5_000),
        count(Cause::Root, Operation::Put, 4, 4, 400),
        count(Cause::Removal, Operation::Delete, 2, 2, 0),
    ]);
    let expected = Held {
        bytes: 400 + 2 * 2_000,
        objects: 6,
    };
    assert_eq!(removed(&counted, &counted), expected);
    assert_eq!(removed(&Used::default(), &Used::default()), Held::default());
}

fn open(directory: &Path) -> Arc<Gateway> {
    let text = format!(
        "state_directory = \"{0}/state\"\nruntime_directory = \"{0}/run\"\n\
         [store]\nurl = \"dir:{0}/store\"\n[cache]\nsize = \"64MiB\"\n",
        directory.display()
    );
    let settings = crate::settings::Settings::parse(&text).unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match Gateway::open(crate::daemon::options(&settings).unwrap()) {
            Ok(gateway) => return gateway,
            // The last thread of an earlier gateway may still hold the state directory's lock.
            Err(OpenError::InUse { .. }) if Instant::now() < patience => thread::sleep(Duration::from_millis(2)),
            Err(error) => panic!("the gateway does not open: {error}"),
        }
    }
}

fn requests(month: &MonthTally) -> u64 {
    month.used.iter().map(Usage::requests).sum()
}

#[test]
fn the_month_goes_on_after_a_restart_and_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("run")).unwrap();
    let state = directory.path().join("state");
    let start =
        |gateway: &Arc<Gateway>| Bill::start(gateway, &state, shipped(Table::AwsS3Standard), Vec::new(), None).unwrap();
    let gateway = open(directory.path());
    let bill = start(&gateway);
    let first = bill.now();
    // The start itself has asked the store.
    assert!(first.used[Cause::Recovery as usize].requests() > 0 && requests(&first.month) > 0);
    assert!(first.month.dollars(&first.prices.prices).total > 0.0);
    gateway.stop(Duration::from_secs(20));
    bill.stop();
    let written = LedgerFile::new(&state).read().unwrap();
    assert!(requests(&written.month) >= requests(&first.month));
    drop((bill, gateway));

    let gateway = open(directory.path());
    let bill = start(&gateway);
    let second = bill.now();
    let of_this_life: u64 = second.used.iter().map(Usage::requests).sum();
    assert_eq!(requests(&second.month), requests(&written.month) + of_this_life);
    // What is asked for again and again is counted once.
    let again = bill.now();
    let of_this_life: u64 = again.used.iter().map(Usage::requests).sum();
    assert_eq!(requests(&again.month), requests(&written.month) + of_this_life);
    bill.write();
    let before_the_crash = LedgerFile::new(&state).read().unwrap();
    assert_eq!(requests(&before_the_crash.month), requests(&again.month));
    gateway.stop(Duration::from_secs(20));
}

#[test]
fn nothing_is_written_while_nothing_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("run")).unwrap();
    let gateway = open(directory.path());
    let state = directory.path().join("state");
    let bill = Bill::start(&gateway, &state, shipped(Table::Free), Vec::new(), None).unwrap();
    bill.ending.set();
    gateway.stop(Duration::from_secs(20));
    bill.stop();
    // A request that was under way when the gateway stopped may still be counted.
    let is_written = || {
        let _ = std::fs::remove_file(state.join("bill"));
        bill.look();
        state.join("bill").exists()
    };
    let mut tries = std::iter::repeat_with(is_written).take(20);
    assert!(tries.any(|is_written| !is_written));
    assert!(!is_written());
}
