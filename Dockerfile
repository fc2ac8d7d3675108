# Builds the operator and packs it with its charts and watches.yaml.
FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin memcached-operator
# There may be no charts yet.
RUN mkdir -p helm-charts

FROM gcr.io/distroless/cc-debian12:nonroot
ENV HOME=/opt/helm
WORKDIR /opt/helm
COPY --from=build /src/target/release/memcached-operator /usr/local/bin/helm-operator
COPY --from=build /src/target/release/memcached-operator /helm-operator
COPY watches.yaml ./watches.yaml
COPY --from=build /src/helm-charts ./helm-charts
USER 1001
ENTRYPOINT ["/usr/local/bin/helm-operator", "run", "--watches-file=./watches.yaml"]
