"""FlashInfer's paged MLA attention, with the back end that it chooses for the GPU."""
