use std::net::SocketAddr;

use super::{Address, HostName, Listener, WebhookOptions, address, host_of};

fn options(url: Option<&str>, service: Option<&str>, in_cluster: bool) -> WebhookOptions {
    WebhookOptions {
        url: url.map(ToOwned::to_owned),
        service_name: service.map(ToOwned::to_owned),
        in_cluster,
        ..WebhookOptions::default()
    }
}

#[tokio::test]
async fn api_server_reaches_webhooks_through_a_service_or_a_url() {
    let mut listener = Listener::bind("127.0.0.1:0").unwrap();
    listener.address = "0.0.0.0:9443".parse::<SocketAddr>().unwrap();
    let service = |name: &str| Address::Service {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    };
    let dns = |name: &str| HostName::Dns(name.to_owned());
    let ip = HostName::Ip("127.0.0.1".parse().unwrap());
    let url = |url: &str| Address::Url(url.to_owned());
    for (options, wanted) in [
        (
            options(None, None, true),
            (service("op-webhook"), dns("op-webhook.ns.svc")),
        ),
        (
            options(None, Some("hooks"), false),
            (service("hooks"), dns("hooks.ns.svc")),
        ),
        (
            options(None, None, false),
            (url("https://127.0.0.1:9443"), ip),
        ),
        (
            options(Some("https://host:1/"), None, true),
            (url("https://host:1"), dns("host")),
        ),
    ] {
        let found = address(&options, "op", "ns", &listener).unwrap();
        assert_eq!(found, wanted, "{options:?}");
    }
}

#[test]
fn urls_that_the_api_server_would_refuse_are_refused() {
    for url in "http://host host:443 https://host/path https://host?a=b https:// ".split(' ') {
        assert_eq!(host_of(url), None, "{url}");
    }
    let ip = |text: &str| Some(HostName::Ip(text.parse().unwrap()));
    assert_eq!(host_of("https://[::1]:9443"), ip("::1"));
}
