//! The address of profiles. It is one of the loopback interface, because profiles have no authentication.

use std::net::SocketAddr;

use super::loopback::loopback;
use super::{Options, OptionsError};
use crate::telemetry::profiles::AVAILABLE;

const FLAG: &str = "--profiling-bind-address";
const WANTED: &str = "an address of the loopback interface, such as 127.0.0.1:6060; profiles have no authentication, so other machines reach them with `kubectl port-forward` only";

pub(super) fn form(text: &str) -> Result<String, String> {
    match address(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(wanted) => Err(format!("not {wanted}")),
    }
}

/// Returns the address that a text names, `None` if it disables profiles, or what it should be.
fn address(text: &str) -> Result<Option<SocketAddr>, &'static str> {
    if matches!(text, "" | "0") {
        return Ok(None);
    }
    loopback(text).map(Some).ok_or(WANTED)
}

impl Options {
    /// Returns where profiles are served; `None` means nowhere.
    pub(crate) fn profiling_address(&self) -> Result<Option<SocketAddr>, OptionsError> {
        checked(&self.profiling_bind_address, AVAILABLE)
    }
}

fn checked(text: &str, is_available: bool) -> Result<Option<SocketAddr>, OptionsError> {
    let address = address(text).map_err(|wanted| OptionsError::Form {
        name: FLAG,
        value: text.to_owned(),
        wanted,
    })?;
    match address {
        Some(_) if !is_available => Err(OptionsError::NotBuilt {
            flag: FLAG,
            feature: "profiling",
        }),
        address => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::{address, checked};

    #[test]
    fn profiles_are_served_on_loopback_addresses_only() {
        for (text, expected) in [
            ("127.0.0.1:6060", "127.0.0.1:6060"),
            ("127.9.9.9:0", "127.9.9.9:0"),
            ("[::1]:6060", "[::1]:6060"),
            ("localhost:6060", "127.0.0.1:6060"),
        ] {
            let address = address(text).unwrap().unwrap();
            assert_eq!(address.to_string(), expected);
        }
        assert_eq!(address("0"), Ok(None));
        assert_eq!(address(""), Ok(None));
        let wrong = ":6060 6060 0.0.0.0:6060 [::]:6060 [::ffff:127.0.0.1]:6060 10.0.0.1:6060 \
            127.0.0.1 localhost localhost:http localhost.example.com:6060";
        for text in wrong.split(' ') {
            assert!(address(text).is_err(), "{text}");
            let refused = checked(text, true).unwrap_err().to_string();
            let told =
                format!("--profiling-bind-address: {text:?} is not an address of the loopback");
            assert!(refused.starts_with(&told), "{refused}");
        }
    }

    #[test]
    fn a_program_that_cannot_take_profiles_refuses_the_flag() {
        let refused = checked("127.0.0.1:6060", false).unwrap_err().to_string();
        let told = "--profiling-bind-address: this program was built without the feature profiling";
        assert!(refused.starts_with(told), "{refused}");
        assert_eq!(checked("0", false).unwrap(), None);
    }
}
