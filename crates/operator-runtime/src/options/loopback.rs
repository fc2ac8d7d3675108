//! Addresses of the loopback interface, for servers without authentication.

use std::net::SocketAddr;

/// Returns the address of the loopback interface that a text names, such as `127.0.0.1:8082` or `localhost:8082`.
pub fn loopback(text: &str) -> Option<SocketAddr> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    };
    let address = address.ok();
    address.filter(|address: &SocketAddr| address.ip().is_loopback())
}
