# Builds the operator as a static program, and packs it with its charts and watches.yaml.
# Compiles on the builder's own processor for that of the image.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95.0-slim-bookworm AS build
ARG TARGETARCH
# Clang compiles C for all processors, and Rust links. Programs with musl are static.
RUN case $TARGETARCH in \
      amd64) cpu=x86_64 ;; \
      arm64) cpu=aarch64 ;; \
      *) echo "there is no image for $TARGETARCH, only for amd64 and arm64" >&2; exit 1 ;; \
    esac \
 && echo $cpu-unknown-linux-musl > /target \
 && rustup target add $cpu-unknown-linux-musl \
 && dpkg --add-architecture $TARGETARCH \
 && apt-get update \
 && apt-get install -y --no-install-recommends clang musl-dev:$TARGETARCH \
 && ln -s /usr/include/$cpu-linux-musl /musl
ENV TARGET_CC=clang
ENV TARGET_CFLAGS="-nostdlibinc -isystem /musl"
ENV RUSTFLAGS="-Clinker=rust-lld -Clink-arg=--pack-dyn-relocs=relr"
WORKDIR /src
COPY . .
RUN cargo build --release --locked --target $(cat /target) --bin memcached-operator
# Under the names that images of the Go operators have. There may be no charts yet.
RUN mkdir -p /image/usr/local/bin /image/opt/helm helm-charts \
 && cp target/*/release/memcached-operator /image/usr/local/bin/helm-operator \
 && ln -s usr/local/bin/helm-operator /image/helm-operator \
 && cp -R watches.* helm-charts /image/opt/helm

FROM gcr.io/distroless/static-debian12:nonroot
ENV HOME=/opt/helm
WORKDIR /opt/helm
COPY --from=build /image /
USER 1001
ENTRYPOINT ["/usr/local/bin/helm-operator", "run", "--watches-file=./watches.yaml"]
