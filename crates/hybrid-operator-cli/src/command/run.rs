//! `run`: runs the charts of a watches file in one operator.

use hybrid_operator::operator::Operator;
use hybrid_operator::options::RunArgs;

pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    let operator = Operator::new("hybrid-operator", env!("CARGO_PKG_VERSION"));
    operator
        .with_charts()
        .run(args)
        .map_err(anyhow::Error::from_boxed)
}
