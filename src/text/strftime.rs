use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// `time` in UTC, written as C's `strftime` would in the C locale. Directives outside of
/// those that templates use stay as they are.
pub(super) fn strftime(format: &str, time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(_) => 0,
    };
    let days = seconds.div_euclid(86_400);
    let (hour, minute, second) = (seconds.rem_euclid(86_400) / 3600, seconds / 60 % 60, seconds % 60);
    let (year, month, day) = civil_from_days(days);
    let weekday = (days + 4).rem_euclid(7);
    let name = |names: &[&'static str], index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| names.get(index).copied())
            .unwrap_or("")
    };
    let month_name = name(&MONTHS, month - 1);
    let day_name = name(&DAYS, weekday);
    let hour12 = (hour + 11) % 12 + 1;

    let mut out = String::with_capacity(format.len() + 16);
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = rest.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = rest.next();
        }
        let number = |value: i64, width: usize| {
            if unpadded {
                value.to_string()
            } else {
                format!("{value:0width$}")
            }
        };
        out.push_str(&match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100, 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('e') => format!("{day:2}"),
            Some('H') => number(hour, 2),
            Some('I') => number(hour12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('j') => number(days - days_from_civil(year, 1, 1) + 1, 3),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name.chars().take(3).collect(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name.chars().take(3).collect(),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            Some(other) if unpadded => format!("%-{other}"),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        });
    }
    out
}

/// Days since 1970-01-01 to a date of the proleptic Gregorian calendar. Years are counted
/// from March, so that the leap day is the last of its year, in eras of 400 years.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, format: &str) -> String {
        strftime(format, UNIX_EPOCH + Duration::from_secs(seconds))
    }

    // Expected values: `date -u -d @SECONDS +FORMAT`.
    #[test]
    fn dates_as_the_date_command_writes_them() {
        assert_eq!(at(0, "%Y-%m-%d %H:%M:%S %a %j"), "1970-01-01 00:00:00 Thu 001");
        assert_eq!(at(951_782_400, "%d %b %Y, %A"), "29 Feb 2000, Tuesday");
        assert_eq!(at(1_735_689_599, "%B %-d %y %I%p %j"), "December 31 24 11PM 366");
        assert_eq!(at(4_107_542_400, "%F %% %e"), "%F %  1");
        assert_eq!(at(4_107_542_400, "%d.%m.%Y"), "01.03.2100");
    }
}
