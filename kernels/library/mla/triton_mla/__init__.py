"""Split-KV MLA decode of our own in Triton, a peer in the most common kernel DSL."""
