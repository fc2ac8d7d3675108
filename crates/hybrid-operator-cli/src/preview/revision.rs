//! Files of a revision of the repository, in a temporary directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// The files of a directory at a revision.
pub(crate) struct Revision {
    directory: TempDir,
    /// Short hash of the commit.
    pub(crate) commit: String,
}

impl Revision {
    /// Extracts the files below `root` as they were at `revision`. Neither the work tree nor the
    /// index of the repository changes.
    pub(crate) fn extract(root: &Path, revision: &str) -> anyhow::Result<Self> {
        let name = format!("{revision}^{{commit}}");
        let found = git(
            root,
            [
                "rev-parse",
                "--quiet",
                "--verify",
                "--end-of-options",
                &name,
            ],
        )?;
        let commit = match found {
            Ok(commit) if !commit.trim().is_empty() => commit.trim().to_owned(),
            Ok(_) | Err(_) => {
                if let Err(problem) = git(root, ["rev-parse", "--git-dir"])? {
                    bail!("{} is not in a git repository: {problem}", root.display());
                }
                bail!(
                    "{revision:?} is not a revision of this repository; a shallow clone needs \
                     'git fetch' first"
                );
            }
        };
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let mut archive = command(root)
            .args(["archive", "--format=tar", &commit])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run git")?;
        let unpack = match archive.stdout.take() {
            Some(pipe) => Command::new("tar")
                .args(["-x", "-f", "-", "-C"])
                .arg(directory.path())
                .stdin(pipe)
                .output()
                .context("cannot run tar"),
            None => bail!("cannot read the output of git"),
        };
        let archived = archive.wait_with_output().context("cannot run git")?;
        let unpacked = unpack?;
        for (what, output) in [("git archive", archived), ("tar", unpacked)] {
            if !output.status.success() {
                let problem = String::from_utf8_lossy(&output.stderr);
                bail!("{what} of {revision} failed: {}", problem.trim());
            }
        }
        Ok(Self {
            directory,
            commit: commit.chars().take(12).collect(),
        })
    }

    /// Returns where a file of `root` is at this revision.
    pub(crate) fn path(&self, root: &Path, file: &Path) -> anyhow::Result<PathBuf> {
        let root = std::fs::canonicalize(root)
            .with_context(|| format!("cannot find {}", root.display()))?;
        let parent = file.parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let whole = std::fs::canonicalize(parent)
            .with_context(|| format!("cannot find {}", parent.display()))?
            .join(file.file_name().unwrap_or_default());
        match whole.strip_prefix(&root) {
            Ok(inside) => Ok(self.directory.path().join(inside)),
            Err(_) => bail!("{} is not below {}", file.display(), root.display()),
        }
    }

    /// Returns the directory of the files.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }
}

fn command(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).stdin(Stdio::null());
    command
}

/// Runs git. Returns its output, or its error message.
fn git(
    root: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<Result<String, String>> {
    let output = command(root).args(args).output();
    let output = output.context("cannot run git; is it installed?")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    })
}
