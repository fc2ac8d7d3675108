//! The files of the page.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

/// Path, type and content of each file.
pub(super) const FILES: [(&str, &str, &str); 8] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("assets/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("assets/page.css"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("assets/icon.svg"),
    ),
    ("/page.js", SCRIPT, include_str!("assets/page.js")),
    ("/list.js", SCRIPT, include_str!("assets/list.js")),
    ("/details.js", SCRIPT, include_str!("assets/details.js")),
    ("/revisions.js", SCRIPT, include_str!("assets/revisions.js")),
    ("/elements.js", SCRIPT, include_str!("assets/elements.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Returns what serves the files.
pub(super) fn router() -> Router {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, content)| {
            router.route(
                path,
                get(move || async move { ([(CONTENT_TYPE, kind)], content) }),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::FILES;

    /// Maximum size of all files together, in bytes.
    const MAX_SIZE: usize = 200 << 10;

    #[test]
    fn page_is_small() {
        let size: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(size <= MAX_SIZE, "{size} bytes");
    }

    #[test]
    fn page_makes_no_code_of_texts() {
        let ways = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
            "javascript:",
            "setTimeout(\"",
            ".style",
            "onclick",
            "onload",
        ];
        for (path, _, content) in FILES {
            for way in ways {
                assert!(!content.contains(way), "{path} contains {way}");
            }
        }
        let html = FILES.iter().find(|(path, _, _)| *path == "/").unwrap().2;
        for inline in ["<style", "style=", "<script>"] {
            assert!(!html.contains(inline), "the page contains {inline}");
        }
    }
}
