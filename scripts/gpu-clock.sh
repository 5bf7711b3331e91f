# shellcheck shell=bash
# What lock-gpu-clock.sh and reset-gpu-clock.sh share; they source it.
DEVICES="$(dirname "${BASH_SOURCE[0]}")/../knowledge/devices"

# SM clock in MHz of the GPU that nvidia-smi calls $1: the boost clock in its device file, where
# [[used]] comes before the figures; nothing when none is known.
sm_clock() {
  awk -v name="\"$1\"" '
    FNR == 1                 { here = ours = 0 }
    /^torch_names = /        { here = index($0, name) }
    /^metric = /             { ours = here && $3 == "\"boost_clock\"" }
    ours && /^value = [0-9]/ { value = $3 }
    ours && /^unit = "MHz"/  { print value; exit }
  ' "$DEVICES"/*.toml
}

# Memory clock in MHz to lock. HBM has one clock; GDDR changes its own with load and heat.
memory_clock() {
  case $1 in
    *"RTX 5090"*) echo 14001 ;;
  esac
}

# nvidia-smi as it is, else as root where that needs no password.
smi() {
  nvidia-smi "$@" >/dev/null 2>&1 || sudo -n nvidia-smi "$@" >/dev/null 2>&1
}

# Calls $1 with the index and the name of every GPU that is ours to change, or says why none is.
each_gpu() {
  local gpus index name
  if ! gpus=$(nvidia-smi --query-gpu=index,name --format=csv,noheader 2>/dev/null) || [ -z "$gpus" ]
  then
    echo "nvidia-smi finds no GPU: no clock is changed"
    return
  fi
  while IFS=, read -r index name; do
    name=${name# }
    if [ -n "$(nvidia-smi -i "$index" --query-compute-apps=pid --format=csv,noheader 2>/dev/null)" ]
    then
      echo "GPU $index ($name) is computing, perhaps for others: its clocks stay as they are"
    else
      "$1" "$index" "$name"
    fi
  done <<<"$gpus"
}
