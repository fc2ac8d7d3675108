//! Checks that the generated files are up to date. `make generate` writes them.

use kube::CustomResourceExt;
use memcached_operator::api::v1alpha1::MemcachedBackup;

#[test]
fn crd_of_memcached_backup_is_up_to_date() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/config/crd/bases/cache.example.com_memcachedbackups.yaml"
    );
    let wanted = go_yaml::to_string(&MemcachedBackup::crd()).unwrap();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let present = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        present == wanted,
        "{path} is out of date; run `make generate`"
    );
}
