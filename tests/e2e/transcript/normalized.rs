//! Outputs without what differs between two runs.

/// Returns the lines of an output without what differs between two runs.
pub(super) fn normalized(output: &str) -> Vec<String> {
    let line = |line: &str| {
        // kubectl names the namespace since 1.33.
        let line = match line.split_once(" deleted from ") {
            Some((object, _)) => format!("{object} deleted"),
            None => line.to_owned(),
        };
        let words: Vec<String> = line.split_whitespace().map(normalized_word).collect();
        words.join(" ")
    };
    let lines = output.lines().map(line);
    lines.filter(|line| !line.is_empty()).collect()
}

fn normalized_word(word: &str) -> String {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "smhd".contains(c));
    if is_age {
        return "AGE".to_owned();
    }
    let is_time = word.contains(':') && word.parse::<jiff::civil::Time>().is_ok();
    if is_time || word.parse::<jiff::Timestamp>().is_ok() {
        return "TIME".to_owned();
    }
    if word.parse::<jiff::civil::Date>().is_ok() {
        return "DATE".to_owned();
    }
    if word.parse::<std::net::Ipv4Addr>().is_ok() {
        return "IP".to_owned();
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut normalized = String::new();
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end.max(c.len_utf8()));
        normalized.push_str(&normalized_name(name));
        rest = after;
    }
    normalized
}

/// Replaces a uid, and the suffix of the name of a Pod of a Deployment.
fn normalized_name(name: &str) -> String {
    let parts: Vec<&str> = name.split('-').collect();
    let is_hash = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match parts.as_slice() {
        _ if lengths == [8, 4, 4, 4, 12] => "UID".to_owned(),
        // The names that the operator of etcd clusters makes up.
        [name @ .., random]
            if !name.is_empty()
                && random.len() == 6
                && random.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            format!("{}-RANDOM", name.join("-"))
        }
        [name @ .., set, pod]
            if !name.is_empty()
                && (8..=10).contains(&set.len())
                && set.contains(|c: char| c.is_ascii_digit())
                && pod.len() == 5
                && is_hash(set)
                && is_hash(pod) =>
        {
            format!("{}-POD", name.join("-"))
        }
        _ => name.to_owned(),
    }
}

#[test]
fn ages_times_and_random_names_are_not_compared() {
    for (output, expected) in [
        ("a   4s\n\nb   1m3s", "a AGE|b AGE"),
        ("pod/cache-58d5bdf78f-54dtg   1/1", "pod/cache-POD 1/1"),
        (r#"["cache-58d5bdf78f-54dtg","b"]"#, r#"["cache-POD","b"]"#),
        ("pod/etcd-sample-f26f37", "pod/etcd-sample-RANDOM"),
        ("2030-01-02T03:04:05Z PENDING", "TIME PENDING"),
        ("1 2030-01-02 03:04:05 deployed", "1 DATE TIME deployed"),
        ("10.96.3.4 8000/TCP", "IP 8000/TCP"),
        (
            "secret \"a\" deleted from default namespace",
            "secret \"a\" deleted",
        ),
        (
            "site-frontend memcached-sample",
            "site-frontend memcached-sample",
        ),
    ] {
        assert_eq!(normalized(output).join("|"), expected);
    }
}
