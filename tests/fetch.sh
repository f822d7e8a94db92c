#!/usr/bin/env bash
# Fetches what tests compare with and what isn't a crate: the TypeScript compiler, and the JSON-Schema-Test-Suite as the
# package jsonschema carries it. Each is pinned by version and digest; nothing of them is run while it is installed.
set -euo pipefail
folder=$1
mkdir -p "$folder"
cd "$folder"

say() { printf 'fetch: %s\n' "$1" >&2; }
need() { command -v "$1" >/dev/null || { say "needs $1; on Debian: apt-get install nodejs npm python3-pip"; exit 1; }; }

# fetch NAME FILE SHA256 COMMAND...: runs the command, which puts the file here, checks it and unpacks it as NAME.
fetch() {
    local name=$1 file=$2 digest=$3
    shift 3
    [ ! -d "$name" ] || return 0
    say "fetching $file"
    "$@" >&2
    printf '%s  %s\n' "$digest" "$file" | sha256sum --check --quiet >&2 || { say "$file isn't what it should be"; exit 1; }
    rm -rf "$name.partial"
    mkdir "$name.partial"
    tar -xzf "$file" --strip-components=1 -C "$name.partial"
    rm "$file"
    mv "$name.partial" "$name"
}

need node
need npm
need python3
fetch typescript typescript-6.0.3.tgz 33cd0ee1beaa8c9e9d15a9da836c62ddea4c34a42d7c2d349dbc80d94165d22a \
    npm pack --silent typescript@6.0.3
fetch jsonschema jsonschema-4.26.0.tar.gz 0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326 \
    python3 -m pip download --quiet --no-deps --no-binary :all: --dest . jsonschema==4.26.0
