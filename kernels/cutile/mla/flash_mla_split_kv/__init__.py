"""FlashMLA with the keys of a sequence split over blocks, and a reduce stage that merges them."""
