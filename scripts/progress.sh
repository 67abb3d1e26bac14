# Sourced by the other scripts: long steps that say how far they are, and failures that show why.

# with_progress WHAT LOG COMMAND...: runs the command with its output in LOG. Every ten seconds says how long that has
# taken and the last line of LOG; if the command fails, shows more of LOG and returns its status.
with_progress() {
    local what=$1 log=$2 begun=$SECONDS teller status
    shift 2
    mkdir -p "$(dirname "$log")"
    : >"$log"
    echo "== $what" >&2
    tell_progress "$what" "$log" "$begun" &
    teller=$!
    set +e
    (set -e; "$@") </dev/null >"$log" 2>&1
    status=$?
    set -e
    kill "$teller" 2>/dev/null || true
    wait "$teller" 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        tail -n 20 "$log" >&2
        echo "== $what failed after $((SECONDS - begun)) s; the whole output is in $log" >&2
    fi
    return "$status"
}

tell_progress() { # WHAT LOG BEGUN
    local told=$3
    # Short sleeps that hold none of the script's files: one of them outlives the step.
    while sleep 0.5 >/dev/null 2>&1; do
        [ $((SECONDS - told)) -ge 10 ] || continue
        told=$SECONDS
        echo "   $1, $((SECONDS - $3)) s: $(last_line "$2")" >&2
    done
}

# The last line that says something, in at most 100 characters.
last_line() { grep -av '^[[:space:]]*$' "$1" 2>/dev/null | tail -n 1 | tr -d '\r' | cut -c 1-100; }

# at_once COMMAND...: runs the commands, each in one word, at the same time; fails when all have ended and one has failed.
at_once() {
    local command process processes=() status=0
    for command in "$@"; do
        # Ctrl-C ends them as well, which a shell's background processes would ignore.
        (trap - INT; eval "$command") &
        processes+=($!)
    done
    for process in "${processes[@]}"; do wait "$process" || status=$?; done
    return "$status"
}
