use crate::*;
use proptest::prelude::*;
use tombolo_base::Named;

const S3: Prices = Table::AwsS3Standard.prices();
const TIB: u64 = 1 << 40;

fn about(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-9 + expected.abs() * 1e-9,
        "{found} is not {expected}"
    );
}

fn puts(count: u64) -> Usage {
    Usage {
        puts: count,
        ..Usage::default()
    }
}

#[test]
fn puts_of_a_tebibyte_cost_by_their_size() {
    // By hand: 2^40 / 2^18 = 4,194,304 PUTs at 0.005 $ a thousand; in 4 MiB a sixteenth of that.
    let small = S3.of_usage(&puts(TIB >> 18));
    about(small.put, 20.97152);
    about(small.total, 20.97152);
    about(S3.of_usage(&puts(TIB >> 22)).total, 1.31072);
}

#[test]
fn each_charge_is_as_computed_by_hand() {
    let used = Usage {
        puts: 1_000,
        lists: 2_000,
        gets: 10_000,
        heads: 5_000,
        deletes: 7,
        bytes_up: 3 << 30,
        bytes_down: 10 << 30,
    };
    let bill = Table::AwsS3GlacierInstant.prices().of_usage(&used);
    about(bill.put, 0.02 + 2.0 * 0.005);
    about(bill.get, 10.0 * 0.01 + 5.0 * 0.01);
    about(bill.retrieval, 0.3);
    about(bill.egress, 0.9);
    about(bill.upload + bill.delete + bill.storage, 0.0);
    about(bill.total, 0.03 + 0.15 + 0.3 + 0.9);
    let express = Table::AwsS3Express.prices().of_usage(&used);
    about(express.upload, 3.0 * 0.0032);
    about(express.retrieval, 10.0 * 0.0006);
    about(Table::Free.prices().of_usage(&used).total, 0.0);
    // The example of the provider's own questions and answers: 10^6 PUTs and 9 * 10^6 GETs of 10 KB.
    let example = Usage {
        puts: 1_000_000,
        gets: 9_000_000,
        bytes_up: 1_000_000 * 10 * 1024,
        bytes_down: 9_000_000 * 10 * 1024,
        ..Usage::default()
    };
    let prices = Prices {
        egress_usd_per_gib: 0.0,
        ..Table::AwsS3Express.prices()
    };
    let bill = prices.of_usage(&example);
    let storage = prices.of_storage(10.0 * GIB * MONTH_SECONDS);
    assert_eq!(format!("{:.2}", bill.with_storage(storage).total), "2.58");
}

#[test]
fn storage_is_charged_by_time_and_minimum() {
    about(S3.of_storage(1024.0 * GIB * MONTH_SECONDS), 1024.0 * 0.023);
    let ia = Table::AwsS3StandardIa.prices();
    // A thousand objects of 4 KiB are charged as 128 KiB each.
    let small = Held {
        bytes: 1_000 << 12,
        objects: 1_000,
    };
    about(ia.charged_bytes(&small), 131_072_000.0);
    about(S3.charged_bytes(&small), 4_096_000.0);
    about(
        ia.of_early_removal(&small),
        ia.of_storage(131_072_000.0 * 30.0 * 86_400.0),
    );
    about(S3.of_early_removal(&small), 0.0);
}

#[test]
fn the_papers_figures_follow_from_its_equations() {
    let corporate = Growth {
        initial_gib: 3000.0,
        gib_per_period: 58.77,
        periods: 36.0,
    };
    about(corporate.final_gib(), 5115.72);
    // Printed with a unit price of 0.00295; its total is that of 0.0295.
    assert_eq!(format!("{:.2}", corporate.usd(0.0295)), "4340.65");
    assert_eq!(format!("{:.3}", corporate.usd_per_gib(0.0295)), "0.848");
    let engineering = Growth {
        initial_gib: 19_000.0,
        gib_per_period: 50.33,
        periods: 36.0,
    };
    assert_eq!(format!("{:.3}", engineering.usd_per_gib(0.0295)), "1.017");
    let nothing = Growth {
        initial_gib: 0.0,
        gib_per_period: 0.0,
        periods: 36.0,
    };
    about(nothing.usd_per_gib(1.0), 0.0);
}

#[test]
fn policies_get_the_same_prices_in_integers() {
    let units = S3.units();
    // 4 KiB of 0.09 $ per GiB are 0.343 microdollars.
    assert_eq!((units.get_request, units.egress_per_block), (40_000, 34_332));
    let ia = Table::AwsS3StandardIa.prices().units();
    assert_eq!((ia.get_request, ia.egress_per_block), (100_000, 38_147));
    assert_eq!(Table::Free.prices().units(), UnitPrices::default());
}

#[test]
fn every_table_is_without_fault_and_says_where_it_is_from() {
    for table in Table::ALL {
        let list = table.list();
        assert_eq!(list.prices.faults(), [], "{table}");
        assert!(!list.source.is_empty() && list.remark.ends_with('.'), "{table}");
        assert!(list.date >= Date::of(2025, 1, 1), "{table}");
        assert_eq!(table.name().parse(), Ok(table));
    }
    assert_eq!(Prices::FIELDS.len(), Prices::MEANINGS.len());
    assert_eq!(Table::WORDS.len(), 9);
}

#[test]
fn faults_of_prices_are_told_all_at_once() {
    let fields = |changed: &[(&'static str, f64)]| {
        let mut fields = S3.fields();
        fields.retain(|(name, _)| !changed.iter().any(|(other, _)| other == name));
        fields.extend(changed);
        fields
    };
    assert_eq!(Prices::from_fields(S3.fields()), Ok(S3));
    let found = Prices::from_fields(fields(&[
        ("get_usd_per_1000", -0.1),
        ("egress_usd_per_gib", f64::NAN),
        ("put_usd_per_1000", f64::INFINITY),
        ("glacier_usd", 1.0),
    ]));
    let told: Vec<String> = found.unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].starts_with("there is no price `glacier_usd`; known are put_usd_per_1000, "));
    assert_eq!(told[1], "`put_usd_per_1000` is inf, more than 1000000000");
    assert_eq!(
        told[2],
        "`get_usd_per_1000` is -0.1, and nothing costs less than nothing"
    );
    assert_eq!(told[3], "`egress_usd_per_gib` is NaN, which is no number");
    let mut some = S3.fields();
    some.retain(|(name, _)| *name != "retrieval_usd_per_gib");
    let missing = PriceFault::Missing {
        field: "retrieval_usd_per_gib",
    };
    assert_eq!(Prices::from_fields(some), Err(vec![missing]));
    assert_eq!(Prices::from_fields([]).unwrap_err().len(), Prices::FIELDS.len());
}

#[test]
fn days_and_months_are_the_calendars() {
    for (time_s, date, month) in [
        (0, "1970-01-01", "1970-01"),
        (951_782_400, "2000-02-29", "2000-02"),
        (951_868_799, "2000-02-29", "2000-02"),
        (951_868_800, "2000-03-01", "2000-03"),
        (1_767_225_599, "2025-12-31", "2025-12"),
        (1_767_225_600, "2026-01-01", "2026-01"),
    ] {
        assert_eq!(Date::at(time_s).to_string(), date);
        assert_eq!(date.parse(), Ok(Date::at(time_s)));
        assert_eq!(Month::at(time_s).to_string(), month);
    }
    let february = Month::at(951_782_400);
    assert_eq!((february.end_s() - february.start_s()) / 86_400, 29);
    for wrong in [
        "",
        "2026-2-01",
        "2026-02-30",
        "2026-13-01",
        "2026-01-00",
        "1969-12-31",
        "2026-01-01-01",
        "+026-01-01",
    ] {
        assert_eq!(wrong.parse::<Date>(), Err(DateError), "{wrong}");
    }
}

/// Noon of 11 November 2025; 19.5 days are left.
const NOON_S: u64 = 1_762_862_400;

#[test]
fn a_month_ends_where_it_ends_also_while_nobody_counts() {
    let mut ledger = Ledger::new(NOON_S);
    let held = Held {
        bytes: 1 << 30,
        objects: 4096,
    };
    ledger.count(NOON_S, &[puts(10), puts(1)], Held::default(), held);
    ledger.told_percent = 80;
    let november = ledger.month.month;
    ledger.count(november.end_s() + 86_400, &[puts(2), puts(0)], Held::default(), held);
    let previous = ledger.previous.clone().unwrap();
    about(previous.byte_seconds, GIB * 19.5 * 86_400.0);
    assert_eq!((previous.of_cause(0), previous.of_cause(1)), (puts(10), puts(1)));
    about(ledger.month.byte_seconds, GIB * 86_400.0);
    assert_eq!((ledger.month.of_cause(0), ledger.told_percent), (puts(2), 0));
    // A year without anybody: the storage of the present month alone is known to matter.
    let later = ledger.month.month.end_s() + 400 * 86_400;
    ledger.count(later, &[], Held::default(), held);
    about(
        ledger.month.byte_seconds,
        GIB * (later - ledger.month.month.start_s()) as f64,
    );
}

#[test]
fn a_clock_that_is_wrong_for_a_while_costs_no_counts() {
    let held = Held {
        bytes: 1 << 30,
        objects: 1,
    };
    for wrong_s in [0, NOON_S - 40 * 86_400, NOON_S + 40 * 86_400, u64::MAX] {
        let mut ledger = Ledger::new(NOON_S);
        ledger.count(NOON_S, &[puts(1)], Held::default(), held);
        ledger.count(wrong_s, &[puts(20)], held, held);
        assert_eq!(
            (ledger.month.month, ledger.month.of_cause(0)),
            (Month::at(wrong_s), puts(20))
        );
        ledger.count(NOON_S + 60, &[puts(300)], held, held);
        assert_eq!(
            (ledger.month.month, ledger.month.of_cause(0)),
            (Month::at(NOON_S), puts(321))
        );
        assert_eq!((ledger.previous.clone(), ledger.month.removed.objects), (None, 2));
        // Never more than the month is long.
        assert!(ledger.month.byte_seconds <= GIB * 31.0 * 86_400.0);
        assert!(ledger.forecast::<1>(&S3, None, 0.0).total < 1.0);
    }
}

#[test]
fn a_forecast_goes_on_as_lately_and_charges_what_lies_there() {
    let mut ledger = Ledger::new(NOON_S);
    let held = Held {
        bytes: 1 << 40,
        objects: 1 << 20,
    };
    ledger.count(NOON_S, &[puts(0)], Held::default(), held);
    ledger.count(NOON_S + 86_400, &[puts(200_000)], Held::default(), held);
    // A dollar for 200,000 PUTs on one day, and twice of that on each of the 18.5 left.
    let window = Window {
        span_s: 43_200,
        used: [puts(200_000)],
    };
    let forecast = ledger.forecast(&S3, Some(&window), 0.0);
    let storage_per_day = 1024.0 * 0.023 / MONTH_DAYS;
    about(forecast.spent, 1.0 + storage_per_day);
    about(forecast.operation_per_day, 2.0);
    about(forecast.storage_per_day, storage_per_day);
    about(forecast.total, 1.0 + 18.5 * 2.0 + 19.5 * storage_per_day);
    // Without a window of an hour the month so far has to do.
    let short = Window {
        span_s: 3_599,
        ..window
    };
    about(ledger.forecast(&S3, Some(&short), 0.0).operation_per_day, 1.0);
    about(ledger.forecast::<1>(&S3, None, 0.0).operation_per_day, 1.0);
    // What grows by a GiB a day: equation (5) over 18.5 days.
    let growing = ledger.forecast(&S3, Some(&window), GIB).total - forecast.total;
    about(growing, 18.5 * 19.5 / 2.0 * 0.023 / MONTH_DAYS);
}

#[test]
fn a_budget_is_told_of_once_for_each_share() {
    let budget = Budget { usd_per_month: 10.0 };
    let mut told = 0;
    let mut news = Vec::new();
    for usd in [4.0, 5.0, 5.5, 4.8, 5.0, 8.1, 4.4, 5.0, 12.0, 9.6, 10.0] {
        let crossing = budget.crossing(usd, told);
        told = crossing.share_percent;
        if crossing.is_new {
            news.push((usd, told));
        }
    }
    assert_eq!(news, [(5.0, 50), (8.1, 80), (5.0, 50), (12.0, 100)]);
    let nothing = Budget { usd_per_month: 0.0 };
    assert!(!nothing.crossing(0.0, 0).is_new && nothing.crossing(0.01, 0).is_new);
}

#[test]
fn rates_look_back_an_hour_and_a_day() {
    let mut rates = Rates::<1>::default();
    assert_eq!(rates.over(0, HOUR_S, &[puts(0)]), None);
    // One PUT a second, for three days.
    let end = 3 * DAY_S;
    (0..=end)
        .step_by(20)
        .for_each(|second| rates.look(second, [puts(second)]));
    let used = |span_s| rates.over(end, span_s, &[puts(end)]).unwrap();
    assert_eq!((used(HOUR_S).span_s, used(HOUR_S).used), (HOUR_S, [puts(HOUR_S)]));
    let day = used(DAY_S);
    assert!((DAY_S..DAY_S + 1800).contains(&day.span_s), "{}", day.span_s);
    assert_eq!(day.used, [puts(day.span_s)]);
    about(used(HOUR_S).per_day(), 24.0);
    let young = Window {
        span_s: 10,
        used: [puts(1)],
    };
    about(young.per_day(), 24.0);
    assert!(format!("{rates:?}").matches("puts").count() <= 170);
}

fn prices() -> impl Strategy<Value = Prices> {
    proptest::collection::vec(0.0..PRICE_MAX, Prices::FIELDS.len()).prop_map(|figures| {
        let fields = Prices::FIELDS.iter().copied().zip(figures);
        Prices::from_fields(fields).unwrap()
    })
}

fn usage(max: u64) -> impl Strategy<Value = Usage> {
    proptest::array::uniform7(0..=max).prop_map(|[puts, lists, gets, heads, deletes, bytes_up, bytes_down]| Usage {
        puts,
        lists,
        gets,
        heads,
        deletes,
        bytes_up,
        bytes_down,
    })
}

proptest! {
    #[test]
    fn bills_add_up(prices in prices(), left in usage(1 << 50), right in usage(1 << 50)) {
        let apart = prices.of_usage(&left).plus(&prices.of_usage(&right));
        let together = prices.of_usage(&left.plus(&right));
        for (apart, together) in [(apart.total, together.total), (apart.put, together.put), (apart.egress, together.egress)] {
            prop_assert!((apart - together).abs() <= together.abs() * 1e-12 + 1e-12, "{} {}", apart, together);
        }
        prop_assert_eq!(left.plus(&right).since(&right), left);
        prop_assert!((together.total - together.operation()).abs() <= together.total * 1e-12);
    }

    #[test]
    fn more_costs_no_less_and_nothing_overflows(prices in prices(), less in usage(u64::MAX), more in usage(u64::MAX)) {
        let both = prices.of_usage(&less.plus(&more));
        prop_assert!(both.total.is_finite());
        prop_assert!(both.total >= prices.of_usage(&less).total * (1.0 - 1e-12));
        let held = Held { bytes: less.puts, objects: more.puts };
        prop_assert!(prices.of_early_removal(&held).is_finite());
        let _ = prices.units();
        let mut ledger = Ledger::new(less.gets);
        ledger.count(less.gets % (1 << 38), &[less], held, held);
        ledger.count(more.gets % (1 << 38), &[more, less], held, held);
        let window = Window { span_s: more.lists, used: [more, less] };
        prop_assert!(ledger.forecast(&prices, Some(&window), more.bytes_up as f64).total.is_finite());
    }

    /// Against the same days counted one by one.
    #[test]
    fn dates_go_there_and_back(days in 0u64..200_000) {
        let date = Date::at(days * 86_400 + days % 86_400);
        prop_assert_eq!(date.days(), days as i64);
        let next = Date::at((days + 1) * 86_400);
        prop_assert!(next > date && (next.day == date.day + 1 || next.day == 1));
        let month = Month::at(days * 86_400);
        prop_assert!((month.start_s()..month.end_s()).contains(&(days * 86_400)));
    }

    /// However finely it is counted, a month comes to the same.
    #[test]
    fn sums_do_not_depend_on_when_they_are_counted(steps in proptest::collection::vec((0u64..400_000, 0u64..1000), 1..30)) {
        let held = Held { bytes: 3 << 30, objects: 7 };
        let (mut fine, mut coarse) = (Ledger::new(NOON_S), Ledger::new(NOON_S));
        fine.count(NOON_S, &[], Held::default(), held);
        coarse.count(NOON_S, &[], Held::default(), held);
        let (mut now, mut sum) = (NOON_S, 0);
        for (seconds, count) in steps {
            now += seconds;
            sum += count;
            fine.count(now, &[puts(count)], Held::default(), held);
        }
        coarse.count(now, &[puts(sum)], Held::default(), held);
        let end_of_first = Month::at(NOON_S).end_s();
        if now < end_of_first {
            prop_assert_eq!(fine.month.of_cause(0), coarse.month.of_cause(0));
        }
        let (left, right) = (fine.month.byte_seconds, coarse.month.byte_seconds);
        prop_assert!((left - right).abs() <= right * 1e-9, "{} {}", left, right);
    }
}
