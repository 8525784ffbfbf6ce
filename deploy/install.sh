#!/bin/sh
# What goes into the image, step by step. The Dockerfile runs these steps, and a test runs them in a
# clean Debian root.
#
#   install.sh build     /opt/playhead: the command and its locked packages; needs uv, takes the cwd
#   install.sh runtime   what the command needs beside them: Python, a C compiler for Triton, a user
#
# TORCH_INDEX, where set, is a package index with CPU builds of torch: the image is 3 GB smaller.
set -eu
FOLDER=${FOLDER:-/opt/playhead}
CACHE=${CACHE:-/cache}
APP_UID=10001

debian() {
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
    rm -rf /var/lib/apt/lists/*
}

build() {
    debian python3 ca-certificates
    uv venv --quiet --python /usr/bin/python3 "$FOLDER"
    lock=requirements/engine.txt
    if [ -n "${TORCH_INDEX:-}" ]; then
        wanted=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' $lock)
        uv pip install --quiet --python "$FOLDER" --no-deps --index-url "$TORCH_INDEX" "torch==$wanted"
        lock=/tmp/rest.txt # torch's own libraries are in the CPU build
        awk '/^[A-Za-z0-9]/ { out = $0 !~ /^(torch|triton|nvidia-[a-z0-9-]*|cuda-[a-z0-9-]*)==/ } out' \
            requirements/engine.txt >$lock
    fi
    uv pip install --quiet --python "$FOLDER" --no-deps --require-hashes -r "$lock"
    uv pip install --quiet --python "$FOLDER" --no-deps --no-build-isolation --link-mode copy .
}

runtime() {
    packages="python3 ca-certificates"
    [ -n "${TORCH_INDEX:-}" ] || packages="$packages gcc libc6-dev python3-dev"
    # shellcheck disable=SC2086
    debian $packages
    useradd --uid "$APP_UID" --no-create-home --home-dir "$CACHE" --shell /usr/sbin/nologin playhead
    mkdir -p "$CACHE"
    chown "$APP_UID:$APP_UID" "$CACHE"
}

case ${1:-} in
build) build ;;
runtime) runtime ;;
*)
    echo "install.sh: build or runtime, got '${1:-}'" >&2
    exit 2
    ;;
esac
