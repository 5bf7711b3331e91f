"""FlashMLA's and FlashInfer's calls for MLA decode, over our kernels for a paged KV cache.

``flashmla`` has FlashMLA's, ``flashinfer`` FlashInfer's, ``operators`` what is below both.
"""
