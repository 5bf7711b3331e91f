"""v2: longest causal tiles first, by sections of heads in L2; fast-math softmax."""
