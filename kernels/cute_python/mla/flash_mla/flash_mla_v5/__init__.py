"""v5: split-KV over as many CTAs per row tile as there are SMs for, and a merge kernel."""
