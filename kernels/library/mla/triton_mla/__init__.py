"""Split-KV MLA decode of our own in Triton: what a peer in the most common kernel DSL takes."""
