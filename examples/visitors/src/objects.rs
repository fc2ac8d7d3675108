//! The objects of a `VisitorsApp`: a Secret, and for each component a Deployment and a Service.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, PodSpec, PodTemplateSpec, Probe, Secret,
    SecretKeySelector, Service, ServicePort, ServiceSpec, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::api::VisitorsApp;

/// Key of the Secret with the password of the database.
pub const PASSWORD: &str = "password";

/// Name of the database, and of its user.
const DATABASE_NAME: &str = "visitors";
/// Annotation of the Pods that read the Secret. A new Secret thereby replaces them.
const SECRET_ANNOTATION: &str = "example.com/secret-uid";

/// A part of the site: one Deployment and one Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The database. Its data is in its Pod and is lost with it.
    Database,
    /// The REST service in front of the database.
    Backend,
    /// The web site.
    Frontend,
}

impl Component {
    /// Returns the suffix of the names of its objects.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Database => "mysql",
            Self::Backend => "backend",
            Self::Frontend => "frontend",
        }
    }

    /// Returns its image.
    pub fn image(self) -> &'static str {
        match self {
            Self::Database => "docker.io/library/mysql:8.4",
            Self::Backend => "docker.io/jdob/visitors-service:1.0.0",
            Self::Frontend => "docker.io/jdob/visitors-webui:1.0.0",
        }
    }

    fn port(self) -> i32 {
        match self {
            Self::Database => 3306,
            Self::Backend => 8000,
            Self::Frontend => 3000,
        }
    }

    /// Returns the name of its objects.
    pub fn name(self, app: &VisitorsApp) -> String {
        format!("{}-{}", app.name_any(), self.suffix())
    }
}

/// Returns the name of the Secret with the password of the database.
pub fn secret_name(app: &VisitorsApp) -> String {
    Component::Database.name(app)
}

/// The Secret with the password of the database. Nobody can change it, because the database would
/// not notice.
pub fn secret(app: &VisitorsApp, password: ByteString) -> Secret {
    Secret {
        metadata: metadata(app, Component::Database),
        data: Some(BTreeMap::from([(PASSWORD.to_owned(), password)])),
        immutable: Some(true),
        ..Secret::default()
    }
}

/// The Service of a component.
pub fn service(app: &VisitorsApp, component: Component) -> Service {
    let port = component.port();
    Service {
        metadata: metadata(app, component),
        spec: Some(ServiceSpec {
            selector: Some(labels(app, component)),
            ports: Some(vec![ServicePort {
                port,
                target_port: Some(IntOrString::Int(port)),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The Deployment of a component. `secret_uid` is the uid of the Secret that its Pods read.
pub fn deployment(app: &VisitorsApp, component: Component, secret_uid: &str) -> Deployment {
    let is_database = component == Component::Database;
    let reads_secret = component != Component::Frontend;
    let pod_metadata = ObjectMeta {
        labels: Some(labels(app, component)),
        annotations: reads_secret
            .then(|| BTreeMap::from([(SECRET_ANNOTATION.to_owned(), secret_uid.to_owned())])),
        ..ObjectMeta::default()
    };
    Deployment {
        metadata: metadata(app, component),
        spec: Some(DeploymentSpec {
            replicas: Some(if is_database { 1 } else { app.spec.size }),
            // There is never more than one database.
            strategy: is_database.then(|| DeploymentStrategy {
                type_: Some("Recreate".to_owned()),
                ..DeploymentStrategy::default()
            }),
            selector: LabelSelector {
                match_labels: Some(labels(app, component)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(pod_metadata),
                spec: Some(PodSpec {
                    containers: vec![container(app, component)],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn container(app: &VisitorsApp, component: Component) -> Container {
    let port = component.port();
    let env = match component {
        Component::Database => vec![
            random("MYSQL_ROOT_PASSWORD", app),
            text("MYSQL_DATABASE", DATABASE_NAME),
            text("MYSQL_USER", DATABASE_NAME),
            random("MYSQL_PASSWORD", app),
        ],
        Component::Backend => vec![
            text("MYSQL_SERVICE_HOST", &Component::Database.name(app)),
            text("MYSQL_DATABASE", DATABASE_NAME),
            text("MYSQL_USERNAME", DATABASE_NAME),
            random("MYSQL_PASSWORD", app),
        ],
        Component::Frontend => vec![text("REACT_APP_TITLE", &app.spec.title)],
    };
    Container {
        name: component.suffix().to_owned(),
        image: Some(component.image().to_owned()),
        env: Some(env),
        ports: Some(vec![ContainerPort {
            container_port: port,
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(Probe {
            tcp_socket: Some(TCPSocketAction {
                port: IntOrString::Int(port),
                ..TCPSocketAction::default()
            }),
            ..Probe::default()
        }),
        ..Container::default()
    }
}

fn text(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    }
}

/// A variable with the random password.
fn random(name: &str, app: &VisitorsApp) -> EnvVar {
    let key = SecretKeySelector {
        name: secret_name(app),
        key: PASSWORD.to_owned(),
        ..SecretKeySelector::default()
    };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(key),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn metadata(app: &VisitorsApp, component: Component) -> ObjectMeta {
    ObjectMeta {
        name: Some(component.name(app)),
        namespace: app.namespace(),
        labels: Some(labels(app, component)),
        ..ObjectMeta::default()
    }
}

fn labels(app: &VisitorsApp, component: Component) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (format!("app.kubernetes.io/{key}"), value.to_owned());
    BTreeMap::from([
        label("name", "visitors"),
        label("instance", &app.name_any()),
        label("component", component.suffix()),
    ])
}
