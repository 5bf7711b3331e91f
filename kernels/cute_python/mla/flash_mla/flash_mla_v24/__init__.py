"""v24: maxima are published before weights are made under them."""
