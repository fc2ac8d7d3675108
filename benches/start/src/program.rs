//! Starts a program and reads from /proc what it has used.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use start_benchmark::cpu;

/// Time between two requests to `/readyz`.
const POLL: Duration = Duration::from_micros(500);

/// Time within which a program becomes ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A program that serves `/readyz`.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// `{probes}` and `{metrics}` are replaced with free addresses.
    pub(crate) args: Vec<String>,
}

/// Resources that one start has used.
pub(crate) struct Start {
    /// From the start of the process to the first answer 200 of `/readyz`.
    pub(crate) ready: Duration,
    /// Processor time of all threads until then.
    pub(crate) cpu: Duration,
    /// Page faults until then.
    pub(crate) faults: u64,
    /// Memory when the program was read last, in KiB: anonymous, and of files.
    pub(crate) anonymous: u64,
    pub(crate) file: u64,
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// Starts the program, and reads its memory when it has been ready for `idle`.
    pub(crate) async fn start(&self, kubeconfig: &Path, directory: &Path, idle: Duration) -> Start {
        let (probes, metrics) = (free_address(), free_address());
        let args = self.args.iter().map(|arg| {
            arg.replace("{probes}", &probes.to_string())
                .replace("{metrics}", &metrics.to_string())
        });
        let mut command = Command::new(&self.path);
        command
            .args(args)
            .current_dir(directory)
            .env("KUBECONFIG", kubeconfig);
        command
            .env("OPERATOR_NAME", "bench")
            .env("POD_NAMESPACE", "default");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let mut process = Process(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{}: {error}", self.path.display())),
        );
        while !is_ready(probes) {
            let ended = process.0.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < READY_WITHIN,
                "{} is not ready: {ended:?}",
                self.name
            );
            tokio::time::sleep(POLL).await;
        }
        let ready = started.elapsed();
        let id = process.0.id();
        let (cpu, faults) = (cpu(id), faults(id));
        tokio::time::sleep(idle).await;
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        Start {
            ready,
            cpu,
            faults,
            anonymous: kibibytes(&status, "RssAnon:"),
            file: kibibytes(&status, "RssFile:"),
        }
    }

    /// Returns the size of the program's file in bytes.
    pub(crate) fn size(&self) -> u64 {
        fs::metadata(&self.path).unwrap().len()
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Asks `/readyz`.
fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut connection) = TcpStream::connect(address) else {
        return false;
    };
    let request = "GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
    let mut answer = [0; 12];
    connection.write_all(request.as_bytes()).is_ok()
        && connection.read_exact(&mut answer).is_ok()
        && &answer == b"HTTP/1.1 200"
}

/// Returns the number of page faults, minor and major.
fn faults(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The name of the program ends with the last parenthesis; the fields behind it start with the state.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    [7, 9]
        .iter()
        .map(|index| fields[*index].parse::<u64>().unwrap())
        .sum()
}

fn kibibytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
