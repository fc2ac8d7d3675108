//! `run`: runs the charts of a watches file in one operator.

use hybrid_operator::helm::Charts;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{RunArgs, environment};
use hybrid_operator::telemetry::logs;
use hybrid_operator::watches::WatchesError;

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let options = args.options(environment);
    logs::start(&options.logs);
    let (watches_file, watch_files) = (options.watches_file.clone(), options.watch_files);
    let pace = options.reload_pace;
    let manager = Manager::new(options).load(move || {
        let charts = Charts::load(&watches_file, |chart| chart)?;
        Ok::<_, WatchesError>(charts.watch_files(watch_files).pace(pace).controllers())
    });
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(manager.run())?)
}
