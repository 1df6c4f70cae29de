#!/usr/bin/env bash
# Start a scheduler and workers on this machine, run one protodask command on them, and end them again.
#
#   cluster/local/train.sh [--workers N] [--threads N] [--memory BYTES] COMMAND ARGUMENT...
#
#   cluster/local/train.sh --workers 4 --memory 2GiB fit data.zarr --out model.zarr
#
# Everything listens on loopback only. The exit code is that of the command.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    echo "This is bash $BASH_VERSION, and the script needs 4.4 or later." >&2
    echo "Install a newer one, and call the script with it: /path/to/bash $0 ..." >&2
    exit 2
fi
set -euo pipefail

workers=2 threads=1 memory=auto
while [[ $# -gt 1 ]]; do
    case "$1" in
        --workers) workers="$2"; shift 2 ;;
        --threads) threads="$2"; shift 2 ;;
        --memory) memory="$2"; shift 2 ;;
        *) break ;;
    esac
done
if [[ $# -eq 0 || ($# -eq 1 && "$1" == --*) ]]; then
    echo "usage: $0 [--workers N] [--threads N] [--memory BYTES] COMMAND ARGUMENT..." >&2
    exit 2
fi

scratch="$(mktemp -d)"
export DASK_TEMPORARY_DIRECTORY="$scratch"
# The working folder has data, perhaps of others, and is no place for modules.
export PYTHONSAFEPATH=1
started=()
driver=""
clean_up() {
    local code=$?
    trap - EXIT INT TERM HUP
    if [[ -n "$driver" ]]; then kill -TERM "$driver" 2>/dev/null || true; wait "$driver" 2>/dev/null || true; fi
    # Workers before their scheduler, the last of `started` first.
    local i
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        kill -TERM "${started[i]}" 2>/dev/null || true
        wait "${started[i]}" 2>/dev/null || true
    done
    rm -rf "$scratch"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# TLS does not cover Dask's dashboard and nothing switches its HTTP server off, so it stays on loopback, on a free port.
dask scheduler --host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 --idle-timeout "30 minutes" \
    --scheduler-file "$scratch/scheduler.json" >"$scratch/scheduler.log" 2>&1 &
started+=($!)
for ((i = 0; i < 300; i++)); do
    [[ -s "$scratch/scheduler.json" ]] && break
    if ! kill -0 "${started[0]}" 2>/dev/null; then break; fi
    sleep 0.1
done
if [[ ! -s "$scratch/scheduler.json" ]]; then
    echo "The scheduler did not start within 30 seconds; it said:" >&2
    cat "$scratch/scheduler.log" >&2
    exit 1
fi
address="$(python3 -I -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$scratch/scheduler.json")"

# Should this script be killed without warning, an idle scheduler ends by itself, and so does a worker without one.
for ((i = 0; i < workers; i++)); do
    dask worker "$address" --host 127.0.0.1 --nworkers 1 --nthreads "$threads" --memory-limit "$memory" \
        --dashboard-address 127.0.0.1:0 --local-directory "$scratch" --death-timeout 60 \
        >"$scratch/worker-$i.log" 2>&1 &
    started+=($!)
done

# In the background, because the shell answers signals while it waits, not while a command in the foreground runs.
protodask "$@" --scheduler "$address" &
driver=$!
wait "$driver" && code=0 || code=$?
driver=""
exit "$code"
