//! `run`: runs the charts of a watches file in one operator.

use hybrid_operator::helm;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::RunArgs;
use hybrid_operator::telemetry::logs;

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let options = args.options(|name| std::env::var(name).ok());
    logs::start(&options.logs);
    let charts = helm::load(&options.watches_file)?;
    let manager = charts
        .into_iter()
        .fold(Manager::new(options), Manager::with);
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(manager.run())?)
}
