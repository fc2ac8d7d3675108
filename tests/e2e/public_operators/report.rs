//! The table of results.

/// Result of the run of a project.
pub(super) struct Report {
    pub(super) name: String,
    pub(super) kinds: usize,
    /// Numbers of deployed custom resources under the Go operator, if it was run, and here, and of all.
    pub(super) deployed: (Option<usize>, usize, usize),
    /// Number of objects in the cluster.
    pub(super) objects: usize,
    /// Resident memory of the Go operator, if it was run, and of this one, in MiB.
    pub(super) memory: (Option<f64>, f64),
    /// Known differences: custom resources that are not deployed, and what could not be compared.
    pub(super) notes: Vec<String>,
    /// Unexpected differences.
    pub(super) differences: Vec<String>,
    /// The end of the operator's log.
    pub(super) log: String,
}

impl Report {
    /// Returns the unexpected differences, with the end of the log if there are any.
    pub(super) fn differences(self) -> Vec<String> {
        let name = &self.name;
        let found = self.differences.iter();
        let mut lines: Vec<String> = found.map(|one| format!("{name}: {one}")).collect();
        if !lines.is_empty() {
            lines.push(self.log);
        }
        lines
    }

    fn row(&self) -> String {
        let (there, here, all) = self.deployed;
        let deployed_there =
            there.map_or_else(|| "–".to_owned(), |there| format!("{there} of {all}"));
        let memory_there =
            (self.memory.0).map_or_else(|| "–".to_owned(), |mib| format!("{mib:.1}"));
        let different = [self.notes.as_slice(), self.differences.as_slice()].concat();
        format!(
            "| {} | {} | {deployed_there} | {here} of {all} | {} | {memory_there} | {:.1} | {} |",
            self.name,
            self.kinds,
            self.objects,
            self.memory.1,
            different.join("; ").replace('|', "\\|").replace('\n', " "),
        )
    }
}

/// Returns the table in Markdown, by the names of the projects.
pub(super) fn table(reports: &mut [Report]) -> String {
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    let head = "\
| operator | kinds | deployed by the Go operator | deployed here | objects | MiB, Go | MiB, here | what is different |
|---|---|---|---|---|---|---|---|";
    let rows = reports.iter().map(Report::row);
    let lines: Vec<String> = std::iter::once(head.to_owned()).chain(rows).collect();
    lines.join("\n")
}
