//! `go-programs NAME...`: builds the named programs one after another, unless they are already
//! built. The scripts run it in parallel with `cargo build`.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use go_programs::{
    ARGO_CD, CONTROL_PLANE, FLUX, HELM, HELM_OPERATOR, HELM_OPERATOR_CHUNKS, HELM_OPERATOR_PLUGINS,
    OLM, Program, REGISTRY, SHARDER,
};

const USAGE: &str = "usage: go-programs [control-plane] [helm] [olm] [registry] [sharder] [helm-operator] [helm-operator-plugins] [helm-operator-chunks] [argo-cd] [flux]";

fn main() -> ExitCode {
    let mut programs: Vec<&Program> = Vec::new();
    for name in std::env::args().skip(1) {
        match name.as_str() {
            "control-plane" => programs.push(&CONTROL_PLANE),
            "helm" => programs.push(&HELM),
            "olm" => programs.push(&OLM),
            "registry" => programs.push(&REGISTRY),
            "sharder" => programs.push(&SHARDER),
            "helm-operator" => programs.push(&HELM_OPERATOR),
            "helm-operator-plugins" => programs.push(&HELM_OPERATOR_PLUGINS),
            "helm-operator-chunks" => programs.push(&HELM_OPERATOR_CHUNKS),
            "argo-cd" => programs.push(&ARGO_CD),
            "flux" => programs.push(&FLUX),
            _ => return fail(&format_args!("unknown program {name:?}; {USAGE}")),
        }
    }
    if programs.is_empty() {
        return fail(&USAGE);
    }
    for program in programs {
        if let Err(error) = program.ensure() {
            return match error.source() {
                Some(cause) => fail(&format_args!("{error}: {cause}")),
                None => fail(&error),
            };
        }
    }
    ExitCode::SUCCESS
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    drop(writeln!(io::stderr(), "go-programs: {error}"));
    ExitCode::FAILURE
}
