#!/usr/bin/env bash
# Gives the clocks of this machine's GPUs back to their driver, as before lock-gpu-clock.sh.
set -euo pipefail
# shellcheck source=scripts/gpu-clock.sh
. "$(dirname "$0")/gpu-clock.sh"

reset() {
  if ! smi -i "$1" --reset-gpu-clocks; then
    echo "GPU $1 ($2) does not let this user reset clocks: they stay as they are"
  elif [ -n "$(memory_clock "$2")" ] && ! smi -i "$1" --reset-memory-clocks; then
    echo "GPU $1 ($2): SM clock reset; the memory clock cannot be reset"
  else
    echo "GPU $1 ($2): clocks reset"
  fi
}

each_gpu reset
