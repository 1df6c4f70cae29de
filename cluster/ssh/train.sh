#!/usr/bin/env bash
# Start a scheduler here and workers on the hosts of a list through ssh, run one protodask command on them, end them.
#
#   cluster/ssh/train.sh --hosts FILE [--address IP] [--port N] [--threads N] [--memory BYTES]
#                        [--certs DIR | --insecure] [--remote-certs DIR] [--remote-dask PROGRAM]
#                        [--ssh-option OPTION]... COMMAND ARGUMENT...
#
#   protodask cluster certs --out certs
#   cluster/ssh/train.sh --hosts hosts --address 10.0.0.1 --certs certs fit /shared/data.zarr --out /shared/model.zarr
#
# --address       of this machine, as the hosts reach it (default 127.0.0.1: all workers are here)
# --certs         folder made by `protodask cluster certs`; --remote-certs says where the hosts have ca.pem, worker.pem
#                 and worker-key.pem of it (default: at the same place)
# --remote-dask   the program `dask` on the hosts (default: dask)
# --ssh-option    handed to ssh, such as --ssh-option=-p --ssh-option=2222
#
# A host that does not answer is named and left out; the exit code is that of the command.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    echo "This is bash $BASH_VERSION, and the script needs 4.4 or later." >&2
    echo "Install a newer one, and call the script with it: /path/to/bash $0 ..." >&2
    exit 2
fi
set -euo pipefail

hosts="" address=127.0.0.1 port=0 threads=1 memory=auto certs="" remote_certs="" remote_dask=dask insecure=""
ssh_options=(-o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4)
usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [[ $# -gt 1 ]]; do
    case "$1" in
        --hosts) hosts="$2"; shift 2 ;;
        --address) address="$2"; shift 2 ;;
        --port) port="$2"; shift 2 ;;
        --threads) threads="$2"; shift 2 ;;
        --memory) memory="$2"; shift 2 ;;
        --certs) certs="$2"; shift 2 ;;
        --remote-certs) remote_certs="$2"; shift 2 ;;
        --remote-dask) remote_dask="$2"; shift 2 ;;
        --insecure) insecure=yes; shift ;;
        --ssh-option) ssh_options+=("$2"); shift 2 ;;
        --ssh-option=*) ssh_options+=("${1#*=}"); shift ;;
        *) break ;;
    esac
done
if [[ $# -eq 0 || ($# -eq 1 && "$1" == --*) || -z "$hosts" ]]; then usage; fi
if [[ ! -r "$hosts" ]]; then
    echo "The list of hosts $hosts cannot be read. Write one like hosts.example beside this script." >&2
    exit 2
fi
if [[ -z "$certs" && -z "$insecure" && "$address" != 127.* ]]; then
    echo "Other machines are to connect to $address without TLS, and whoever can connect can run code on the workers." >&2
    echo "Make certificates with 'protodask cluster certs --out certs' and give --certs certs, or say --insecure." >&2
    exit 2
fi

protocol=tcp scheduler_tls=() worker_tls=() driver_tls=()
if [[ -n "$certs" ]]; then
    protocol=tls
    remote_certs="${remote_certs:-$(cd "$certs" && pwd)}"
    scheduler_tls=(--tls-ca-file "$certs/ca.pem" --tls-cert "$certs/scheduler.pem" --tls-key "$certs/scheduler-key.pem")
    worker_tls=(--tls-ca-file "$remote_certs/ca.pem" --tls-cert "$remote_certs/worker.pem"
        --tls-key "$remote_certs/worker-key.pem")
    driver_tls=(--tls-ca "$certs/ca.pem" --tls-cert "$certs/client.pem" --tls-key "$certs/client-key.pem")
elif [[ -n "$insecure" ]]; then
    driver_tls=(--insecure)
fi

scratch="$(mktemp -d)"
export DASK_TEMPORARY_DIRECTORY="$scratch"
# The working folder has data, perhaps of others, and is no place for modules.
export PYTHONSAFEPATH=1
# A pipe to which nobody writes, kept open by this process alone, says "still wanted".
mkfifo "$scratch/wanted"
exec {wanted}<>"$scratch/wanted"
started=() names=()
driver=""
clean_up() {
    local code=$?
    trap - EXIT INT TERM HUP
    if [[ -n "$driver" ]]; then kill -TERM "$driver" 2>/dev/null || true; wait "$driver" 2>/dev/null || true; fi
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

dask scheduler --host "$address" --protocol "$protocol" --port "$port" --dashboard-address 127.0.0.1:0 \
    --idle-timeout "30 minutes" "${scheduler_tls[@]}" --scheduler-file "$scratch/scheduler.json" \
    >"$scratch/scheduler.log" 2>&1 {wanted}>&- &
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
scheduler="$(python3 -I -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$scratch/scheduler.json")"

# The far shell keeps the worker for as long as its standard input is open, and that is closed however this end ends, also
# when it is killed: no worker is left behind, and none has to be found again by name. (`cat` reads a copy of standard
# input, because shells give commands in the background an empty one.)
# shellcheck disable=SC2016
hold='exec 3<&0; "$@" 3<&- </dev/null & worker=$!; (cat <&3 >/dev/null; kill -TERM "$worker") 2>/dev/null & wait "$worker"'
# The last line counts without an end of its own, too, and lines may end as Windows writes them.
while read -r host processes _ || [[ -n "$host" ]]; do
    host="${host%$'\r'}" processes="${processes%$'\r'}"
    if [[ -z "$host" || "$host" == \#* ]]; then continue; fi
    if [[ "$processes" == \#* ]]; then processes=""; fi
    # A worker's own address is the one from which its host reaches the scheduler.
    command=("$remote_dask" worker "$scheduler" --nworkers "${processes:-1}" --nthreads "$threads"
        --memory-limit "$memory" --dashboard-address 127.0.0.1:0 --death-timeout 60 "${worker_tls[@]}")
    if [[ "$address" == 127.* ]]; then command+=(--host "$address"); fi
    ssh "${ssh_options[@]}" "$host" "$(printf '%q ' sh -c "$hold" worker "${command[@]}")" \
        <"$scratch/wanted" {wanted}>&- >"$scratch/worker-${#names[@]}.log" 2>&1 &
    started+=($!)
    names+=("$host")
done <"$hosts"
if [[ ${#names[@]} -eq 0 ]]; then
    echo "The list of hosts $hosts names none." >&2
    exit 2
fi

protodask "$@" --scheduler "$scheduler" "${driver_tls[@]}" {wanted}>&- &
driver=$!
wait "$driver" && code=0 || code=$?
driver=""
# The first of `started` is the scheduler.
for ((i = 0; i < ${#names[@]}; i++)); do
    if ! kill -0 "${started[i + 1]}" 2>/dev/null; then
        echo "The workers on ${names[i]} are not there any more: $(tail -n 1 "$scratch/worker-$i.log")" >&2
    fi
done
exit "$code"
