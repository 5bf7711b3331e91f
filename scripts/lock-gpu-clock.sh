#!/usr/bin/env bash
# Locks the clocks of this machine's GPUs, so that times vary less: the SM clock at the boost clock
# in knowledge/devices, on an RTX 5090 the memory clock too. Undone by reset-gpu-clock.sh. Where
# that is not ours to do, it says so and changes nothing: clocks are recorded with every time.
set -euo pipefail
# shellcheck source=scripts/gpu-clock.sh
. "$(dirname "$0")/gpu-clock.sh"

lock() {
  local sm memory
  sm=$(sm_clock "$2") memory=$(memory_clock "$2")
  if [ -z "$sm" ]; then
    echo "GPU $1 ($2) has no boost clock in knowledge/devices: its clocks stay as they are"
  elif ! smi -i "$1" --lock-gpu-clocks="$sm,$sm"; then
    echo "GPU $1 ($2) does not let this user lock clocks: they stay as they are"
  elif [ -z "$memory" ]; then
    echo "GPU $1 ($2): SM clock locked at $sm MHz"
  elif smi -i "$1" --lock-memory-clocks="$memory,$memory"; then
    echo "GPU $1 ($2): SM clock locked at $sm MHz, memory clock at $memory MHz"
  else
    echo "GPU $1 ($2): SM clock locked at $sm MHz; the memory clock cannot be locked"
  fi
}

each_gpu lock
