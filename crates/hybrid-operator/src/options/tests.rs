//! Tests of the options of `run`, from flags and the environment.

mod table;

use std::time::Duration;

use clap::Parser;

use super::{ChartOptions, RunArgs, double_dashes};

fn charts(args: &[&str]) -> ChartOptions {
    let args = ["run"].iter().chain(args).map(Into::into);
    let args = RunArgs::try_parse_from(double_dashes(args)).unwrap();
    let options = args.options(|_| None);
    options.extensions.get().cloned().unwrap()
}

#[test]
fn settings_of_charts_come_from_flags_with_one_or_two_dashes() {
    let period = |options: ChartOptions| options.reconcile_period;
    assert_eq!(
        period(charts(&["-reconcile-period=5s"])),
        Duration::from_secs(5)
    );
    assert_eq!(
        period(charts(&["--reconcile-period=5s"])),
        Duration::from_secs(5)
    );
    assert_eq!(period(charts(&[])), Duration::from_mins(1));
    assert_eq!(period(ChartOptions::default()), Duration::from_mins(1));
}
