# Builds the operator as a static program, and packs it with its charts and watches.yaml.
FROM docker.io/library/rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin memcached-operator
# Under the names that images of the Go operators have. There may be no charts yet.
RUN mkdir -p /image/usr/local/bin /image/opt/helm helm-charts \
 && cp target/release/memcached-operator /image/usr/local/bin/helm-operator \
 && ln -s usr/local/bin/helm-operator /image/helm-operator \
 && cp -R watches.* helm-charts /image/opt/helm

FROM gcr.io/distroless/static-debian12:nonroot
ENV HOME=/opt/helm
WORKDIR /opt/helm
COPY --from=build /image /
USER 1001
ENTRYPOINT ["/usr/local/bin/helm-operator", "run", "--watches-file=./watches.yaml"]
