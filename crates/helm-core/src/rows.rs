//! Tables of test cases.

/// Returns the rows of a table with bars between its columns, except for comments.
pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let lines = table.trim().lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//")).map(|line| {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        columns.try_into().unwrap()
    })
}
