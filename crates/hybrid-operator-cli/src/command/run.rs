//! `run`: runs the charts of a watches file in one operator.

use hybrid_operator::helm::Charts;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{RunArgs, environment};
use hybrid_operator::telemetry::logs;

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let options = args.options(environment);
    logs::start(&options.logs);
    let charts = Charts::load(&options.watches_file, |chart| chart)?
        .watch_files(options.watch_files)
        .pace(options.reload_pace);
    let manager = charts.add_to(Manager::new(options));
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(manager.run())?)
}
